"""The command line: the selected command, its output and its exit status."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest
import typer
import typer.main
from typer.models import OptionInfo

from jan_serve import __version__
from jan_serve.cli.app import COMMANDS, HABITS, build_app, with_default_command
from jan_serve.cli.main import main
from jan_serve.cli.options import setting_options

pytestmark = pytest.mark.usefixtures("own_folders")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ([], ["serve"]),
        (["--port", "1"], ["serve", "--port", "1"]),
        (["--model", "x"], ["serve", "--model", "x"]),
        (["serve", "--port", "1"], ["serve", "--port", "1"]),
        (["doctor"], ["doctor"]),
        (["--version"], ["--version"]),
        (["--help"], ["--help"]),
        (["-h"], ["-h"]),
        (["nonsense"], ["nonsense"]),
        (["list", "--json"], ["ls", "--json"]),
        (["unload", "x"], ["stop", "x"]),
        (["search"], ["pull", "--list"]),
        (["help"], ["--help"]),
        (["help", "chat"], ["run", "--help"]),
    ],
)
def test_what_a_command_line_means(words: list[str], meant: list[str]) -> None:
    assert with_default_command(words) == meant


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["--url", "http://x", "run"], 2, "jan-serve run --url …"),
        (["--json", "service", "status"], 2, "jan-serve service --json …"),
        (["--url=http://x", "ps"], 2, "jan-serve ps --url=http://x …"),
        (["--nonsense", "1"], 2, "No such option: --nonsense"),
        (["--verison"], 2, "Did you mean --version?"),
        (["--hlep", "run"], 2, "Did you mean --help?"),
        (["--help-alll"], 2, "No such option: --help-alll (Possible"),
        (["--model", "run", "--nonsense"], 2, "No such option: --nonsense"),
        (["--no-auth", "run"], 2, "unexpected extra argument"),
    ],
)
def test_an_option_before_the_command(
    words: list[str], status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == status
    assert says in capsys.readouterr().err


def test_habits_lead_to_commands() -> None:
    assert not HABITS.keys() & COMMANDS.keys()
    assert {command.split()[0] for command in HABITS.values()} <= COMMANDS.keys()


@pytest.mark.parametrize("word", ["--version", "version"])
def test_version(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word]) == 0
    assert capsys.readouterr().out == f"jan-serve {__version__}\n"


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["serve", "--help-all"]) == 0
    text = capsys.readouterr().out
    for option in setting_options():
        assert option.flag.split("/")[0] in text
    assert "Default: 1337." in text
    assert "bool" not in text


def test_help_shows_the_common_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == 0
    text = capsys.readouterr().out
    assert "--help-all" in text and "--n-ctx" in text and "--override-tensor" not in text
    assert text.count("\n") < 100


@pytest.mark.parametrize(
    "words", [["nonsense"], ["ls", "--nonsense"], ["serve", "--port"], ["config", "nonsense"]]
)
def test_wrong_use_is_status_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err


def test_wrong_settings_are_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", "x"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: --port: port must be a valid integer")
    assert "jan-serve config" in captured.err


def numeric_options(command: Any, *words: str) -> Iterator[tuple[list[str], str, type[Any], OptionInfo]]:
    """Words of the command, flag, int or float, and bounds."""
    for name, each in getattr(command, "commands", {}).items():
        yield from numeric_options(each, *words, name)
    hints = get_type_hints(command.callback, include_extras=True) if command.callback else {}
    for parameter in command.params:
        hint = hints.get(parameter.name)
        options = [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, OptionInfo)]
        kinds = {int, float} & {
            getattr(hint, "__origin__", hint),
            *get_args(getattr(hint, "__origin__", hint)),
        }
        if options and kinds:
            yield [*words], parameter.opts[0], kinds.pop(), options[0]


def test_wrong_numbers_are_refused_in_the_words_of_the_settings(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[str] = []
    for words, flag, kind, bounds in numeric_options(typer.main.get_command(build_app())):
        wrong = {"x": f"a valid {'integer' if kind is int else 'number'}"}
        if bounds.min is not None:
            wrong[str(kind(bounds.min - 1))] = f"greater than or equal to {bounds.min:g}"
        if bounds.max is not None:
            wrong[str(kind(bounds.max + 1))] = f"less than or equal to {bounds.max}"
        for value, reason in wrong.items():
            assert main([*words, f"{flag}={value}"]) == 2
            shown = capsys.readouterr().err
            assert shown == f"error: {flag} must be {reason} (it is '{value}').\nSee --help.\n", words
        seen.append(flag)
    assert len(seen) >= 12 and {"--lines", "--clients", "--threshold", "--port"} <= set(seen)


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for name in COMMANDS:
        assert (f" {name} " in text) == (name not in ("own-server", "cluster-replica")), name
    assert main(["lss"]) == 2
    assert main(["config", "--help"]) == 0


def test_every_command_has_a_help_text() -> None:
    app = build_app()
    names = [command.name or "" for command in app.registered_commands]
    assert {"serve", "ls", "doctor"} <= set(names)
    assert all(
        command.callback is not None and command.callback.__doc__ for command in app.registered_commands
    )
