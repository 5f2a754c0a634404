"""A server for one command: found where one runs, else started for the command and ended with it.

The own server listens on a free port of this machine, with the user's settings otherwise. It is a hidden subcommand, in
a session of its own so that Ctrl-C reaches the command alone; it ends when its standard input does, so that a command
that is killed leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Final

import typer

from jan_serve.cli.client.server_connection import ServerConnection
from jan_serve.cli.commands.serve import run_server
from jan_serve.cli.errors import FAILED, NO_SERVER, CommandError
from jan_serve.cli.options import ConfigOption
from jan_serve.cli.output import Output
from jan_serve.cli.server.listen import listen, url_of
from jan_serve.config import LoadedSettings, ServerAddress, has_address, load_settings, server_address
from jan_serve.logs.log_lines import configure_logging
from jan_serve.wiring.model_sources import ModelSources
from jan_serve.wiring.parts import build_resolver

OWN_SERVER_COMMAND: Final = "own-server"
_END_S: Final = 15.0
_KILL_S: Final = 5.0
_LAST_LINES: Final = 20
_SEE_LOG: Final = FAILED
"""The exit status of what went wrong in the server, rather than in what was asked of it."""


@contextlib.contextmanager
def any_server(
    loaded: LoadedSettings, url: str | None, output: Output, *, model: str | Path | None = None
) -> Generator[ServerConnection]:
    """The running server; where none runs and none was named, one of this command's own until the block ends.

    model: what the command will ask for. A path is a GGUF file, which only an own server can serve, so that no other
    is looked for. Raises CommandError.
    """
    if not isinstance(model, Path) and has_address(loaded, url):
        address = server_address(loaded, url)
        with ServerConnection(address) as connection:
            try:
                connection.check()
            except CommandError as error:
                if error.status != NO_SERVER or address.origin in ("--url", "JAN_SERVE_URL"):
                    raise
            else:
                yield connection
                return
    with _own_server(loaded, model, output) as address, ServerConnection(address) as connection:
        yield connection


@contextlib.contextmanager
def _own_server(loaded: LoadedSettings, model: str | Path | None, output: Output) -> Generator[ServerAddress]:
    command = [*_python_command(), OWN_SERVER_COMMAND]
    if loaded.config_file_read:
        command += ["--config", str(loaded.config_file)]
    if isinstance(model, Path):
        command += ["--model", str(model)]
        output.note(f"Starting a server for {model.name}.")
    else:
        command += ["--no-default"] if model is not None else []
        output.note("No server runs: starting one for this command.")
    with tempfile.TemporaryDirectory(prefix="jan-serve-") as folder:
        log = Path(folder) / "log"
        process = _start(command, log)
        assert process.stdin is not None and process.stdout is not None
        try:
            url = process.stdout.readline().decode().strip()
            if not url:
                process.wait()
                hint = "`jan-serve doctor` looks at the installation."
                raise CommandError("the server did not start", hint, _SEE_LOG)
            key = loaded.settings.api_keys[0] if loaded.settings.api_keys else None
            yield ServerAddress(url, "own", key, loaded.origins.get("api_keys", "default"))
        except CommandError as error:
            if error.status == _SEE_LOG:
                _show_end(log, output)
            raise
        finally:
            process.stdin.close()
            process.stdout.close()
            _end(process)


def _start(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            start_new_session=os.name == "posix",
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for the orderly end that its closed input asks for; insist where it does not come."""
    for limit_s, insist in ((_END_S, process.terminate), (_KILL_S, process.kill)):
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            insist()
        else:
            return
    process.wait()


def _show_end(log: Path, output: Output) -> None:
    """What an own server says ends with it: its last lines go to the person who needs them."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
    for line in lines:
        output.note(f"  {line}")


def _python_command() -> list[str]:
    """Ourselves. -P: the working directory must not be able to shadow a module."""
    return [sys.executable] if getattr(sys, "frozen", False) else [sys.executable, "-P", "-m", "jan_serve"]


def own_server(
    config: ConfigOption = None,
    model: Annotated[Path | None, typer.Option("--model", help="Default model.")] = None,
    no_default: Annotated[
        bool,
        typer.Option("--no-default", help="Do not load the default model: another one will be asked for."),
    ] = False,
) -> None:
    """Serve on a free port of this machine until standard input ends; the address is the first line of the output."""
    flags = {"host": "127.0.0.1", "port": 0, "model": str(model) if model is not None else None}
    loaded = load_settings(flags, config)
    settings = loaded.settings
    if no_default:
        settings = settings.model_copy(update={"model": None})
    book = loaded.book()
    resolver = build_resolver(settings, book)
    with listen(settings.host, settings.port) as sock:
        configure_logging(settings.log_level, as_json=settings.log_json)
        sys.stdout.write(url_of(sock) + "\n")
        sys.stdout.flush()
        threading.Thread(target=_stop_at_end_of_input, daemon=True).start()
        sources = ModelSources(resolver, settings, book)
        raise typer.Exit(run_server(settings, resolver, sources, sock))


def _stop_at_end_of_input() -> None:
    sys.stdin.buffer.read()
    if os.name == "posix":
        os.kill(os.getpid(), signal.SIGTERM)  # to the process: it wakes the main thread from its wait
    else:
        signal.raise_signal(signal.SIGTERM)
