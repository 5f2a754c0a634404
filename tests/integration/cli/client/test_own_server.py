"""Which server a command uses, and what becomes of one that was started for it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from jan_serve.cli.client import own_server
from jan_serve.cli.client.own_server import any_server
from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.errors import FAILED, NO_SERVER, WRONG_USE, CommandError
from jan_serve.config import LoadedSettings, ServerAddress, load_settings
from jan_serve.supervisor.workers import child_process
from tests.support.ports import held_port
from tests.support.servers.served_app import ServedApp

URL = "http://127.0.0.1:9"
SERVER = f"""\
import json, os, signal, sys
how, folder = sys.argv[1:3]
with open(folder + "/arguments", "w") as file:
    json.dump([os.getpid(), *sys.argv[3:]], file)
for number in range(30):
    print("line", number, file=sys.stderr)
if how == "fails":
    sys.exit(1)
if how == "stays":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("{URL}", flush=True)
sys.stdin.read()
if how != "ends":
    signal.pause()
open(folder + "/ended", "w").close()
"""


@dataclass
class Started:
    """What the script in place of a server says of itself."""

    folder: Path
    addresses: list[ServerAddress]

    @property
    def arguments(self) -> list[str] | None:
        file = self.folder / "arguments"
        return json.loads(file.read_text())[1:] if file.exists() else None

    @property
    def runs(self) -> bool:
        pid = json.loads((self.folder / "arguments").read_text())[0]
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True

    @property
    def ended_by_itself(self) -> bool:
        return (self.folder / "ended").exists()


@pytest.fixture
def how() -> str:
    """ends: at the end of its input. hangs, stays: not then; the latter ignores SIGTERM. fails: at the start."""
    return "ends"


@pytest.fixture
def started(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> Started:
    script = tmp_path / "server_script.py"
    script.write_text(SERVER)
    command = [sys.executable, str(script), how, str(tmp_path)]

    def own_command(subcommand: str) -> tuple[str, ...]:
        return (*command, subcommand)

    monkeypatch.setattr(child_process, "own_command", own_command)
    addresses: list[ServerAddress] = []

    def client_of(address: ServerAddress) -> ServerClient:
        addresses.append(address)
        return ServerClient(address)

    monkeypatch.setattr(own_server, "ServerClient", client_of)
    return Started(tmp_path, addresses)


@pytest.fixture
def loaded(own_settings: Path) -> Generator[LoadedSettings]:
    with held_port() as port:
        own_settings.write_text(f'data_dir = "data"\nport = {port}\n')
        yield load_settings({})


def test_the_running_server_is_used(server: ServedApp, loaded: LoadedSettings, started: Started) -> None:
    with any_server(loaded, server.url, model="alpha") as client:
        assert client.url == server.url
    assert started.arguments is None


def test_without_a_server_one_runs_for_as_long_as_the_command(
    loaded: LoadedSettings,
    started: Started,
    own_settings: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with any_server(loaded, None) as client:
        assert (client.url, started.addresses[-1].origin) == (URL, "own")
        assert started.runs
    assert started.arguments == ["own-server", "--config", str(own_settings)]
    assert started.ended_by_itself and not started.runs
    assert "No server runs: starting one for this command." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "n_ctx", "arguments", "note"),
    [
        ("alpha", None, ["--no-default"], "No server runs: starting one"),
        (Path("a.gguf"), None, ["--model", "a.gguf"], "Starting a server for a.gguf."),
        (None, 4096, ["--n-ctx", "4096"], "For a context of 4096 tokens: starting one"),
        (Path("a.gguf"), 64, ["--model", "a.gguf", "--n-ctx", "64"], "Starting a server for a.gguf."),
    ],
)
def test_it_gets_what_the_command_wants(
    loaded: LoadedSettings,
    started: Started,
    own_settings: Path,
    capsys: pytest.CaptureFixture[str],
    model: str | Path | None,
    n_ctx: int | None,
    arguments: list[str],
    note: str,
) -> None:
    with any_server(loaded, None, model=model, n_ctx=n_ctx):
        pass
    assert started.arguments == ["own-server", "--config", str(own_settings), *arguments]
    assert note in capsys.readouterr().err


@pytest.mark.parametrize(("model", "n_ctx"), [(Path("a.gguf"), None), (None, 4096)])
def test_a_file_or_a_context_needs_a_server_of_its_own(
    server: ServedApp,
    loaded: LoadedSettings,
    started: Started,
    model: Path | None,
    n_ctx: int | None,
) -> None:
    with any_server(loaded, server.url, model=model, n_ctx=n_ctx) as client:
        assert client.url == URL
    assert started.arguments is not None


def test_in_place_of_a_server_that_was_named_none_is_started(
    loaded: LoadedSettings, started: Started
) -> None:
    with pytest.raises(CommandError) as refused, any_server(loaded, URL):
        pass
    assert refused.value.status == NO_SERVER
    assert started.arguments is None


@pytest.mark.parametrize("how", ["fails"])
def test_the_log_of_a_server_that_does_not_start_is_shown(
    loaded: LoadedSettings, started: Started, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CommandError, match="the server did not start"), any_server(loaded, None):
        pass
    shown = capsys.readouterr().err.splitlines()
    assert [line.strip() for line in shown if "line" in line] == [
        f"line {number}" for number in range(10, 30)
    ]
    assert not started.runs


@pytest.mark.parametrize(("status", "is_shown"), [(FAILED, True), (WRONG_USE, False)])
def test_the_log_is_shown_where_the_server_failed_and_not_the_request(
    loaded: LoadedSettings,
    started: Started,
    capsys: pytest.CaptureFixture[str],
    status: int,
    is_shown: bool,
) -> None:
    with pytest.raises(CommandError), any_server(loaded, None):
        raise CommandError("no", status=status)
    assert ("line 29" in capsys.readouterr().err) is is_shown
    assert started.ended_by_itself


def test_lines_of_the_log_that_say_no_more_than_the_error_are_not_shown(
    loaded: LoadedSettings, started: Started, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CommandError), any_server(loaded, None):
        raise CommandError("line 29", status=FAILED)
    shown = capsys.readouterr().err
    assert "line 28" in shown
    assert "line 29" not in shown


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("how", ["hangs", "stays"])
def test_a_server_that_does_not_stop_is_stopped(
    loaded: LoadedSettings, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_server, "_STOP_S", 0.05)
    monkeypatch.setattr(own_server, "_TERMINATE_S", 0.05)
    with any_server(loaded, None):
        pass
    assert not started.runs and not started.ended_by_itself


def test_an_interrupt_stops_it_too(loaded: LoadedSettings, started: Started) -> None:
    with pytest.raises(KeyboardInterrupt), any_server(loaded, None):
        raise KeyboardInterrupt
    assert started.ended_by_itself


def test_it_knows_the_keys_of_the_configuration(own_settings: Path, started: Started) -> None:
    own_settings.write_text('data_dir = "data"\napi_keys = ["first", "second"]\n')
    with any_server(load_settings({}), None, n_ctx=64):
        key = started.addresses[-1].key
        assert key is not None and key.get_secret_value() == "first"
