"""Exceptions become one message, a next step and an exit status."""

from __future__ import annotations

import pytest

from jan_serve.cli.errors import CommandError, report
from jan_serve.cli.output import output
from jan_serve.errors import (
    Draining,
    InsufficientMemory,
    InvalidModel,
    ModelFailed,
    ModelNotFound,
    SettingsError,
)


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (SettingsError("--port: wrong"), 2, "error: --port: wrong"),
        (ModelNotFound("x", ("y",)), 2, "Did you mean y?"),
        (InvalidModel("x.gguf is no model"), 1, "Download the file again"),
        (InsufficientMemory("too large"), 1, "--n-ctx"),
        (ModelFailed("crashed"), 1, "jan-serve doctor"),
        (Draining("stopping"), 1, "error: stopping"),
        (CommandError("no", "do yes", 7), 7, "do yes"),
        (SystemExit(3), 3, ""),
        (SystemExit(None), 0, ""),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 1, ""),
        (OSError(28, "No space left on device", "/data/x"), 1, "error: /data/x: No space left on device\n"),
        (OSError("odd"), 1, "error: odd\n"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_status_and_next_step(
    error: BaseException, status: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(error) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert "Traceback" not in captured.err


def test_a_bug_shows_where_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ZeroDivisionError("division by zero")
    except ZeroDivisionError as error:
        assert report(error) == 1
    text = capsys.readouterr().err
    assert "This is a bug" in text
    assert "test_errors.py" in text


def test_texts_are_escaped_and_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    output.error("name [bold]x[/bold] \x1b[31m\r\nsecond line")
    output.data("[red]data\x07")
    output.table(("a", "b"), [("[link=x]y[/link]", "1\n2")])
    output.pairs([("name", "\x1b]0;title\x07")])
    output.warning("w\u202e")
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err
    assert "error: name [bold]x[/bold] \\x1b[31m\nerror: second line\n" in captured.err
    assert "[red]data\\x07" in captured.out
    assert "[link=x]y[/link]" in captured.out
    assert "1\\n2" in captured.out
    assert "w\\u202e" in captured.err
