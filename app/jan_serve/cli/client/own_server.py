"""The server that a command uses: the running one, else one started for this command.
The latter listens on a free local port, with the user's settings otherwise. It runs in its own session, so that Ctrl-C
reaches only the command, and stops at the end of its standard input, so also when the command is killed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Final

from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.errors import FAILED, NO_SERVER, CommandError
from jan_serve.cli.output import output
from jan_serve.config import LoadedSettings, ServerAddress, has_address, server_address

_STOP_S: Final = 15.0
_TERMINATE_S: Final = 5.0
_SHOWN_LOG_LINES: Final = 20
_REQUEST_LOGGER: Final = " jan_serve.request: "


@contextlib.contextmanager
def any_server(
    loaded: LoadedSettings,
    url: str | None,
    *,
    model: str | Path | None = None,
    n_ctx: int | None = None,
    variables: Mapping[str, str] | None = None,
) -> Generator[ServerClient]:
    """The running server; if none runs and none was named, one that runs until the block ends. Raises CommandError.
    model: the model that the command will use. A path names a GGUF file, which only such a server can serve. n_ctx:
    the context that the command wants, which also only such a server has. variables: of its environment."""
    if not isinstance(model, Path) and n_ctx is None and has_address(loaded, url):
        address = server_address(loaded, url)
        with ServerClient(address) as client:
            try:
                client.check()
            except CommandError as error:
                if error.status != NO_SERVER or address.origin in ("--url", "JAN_SERVE_URL"):
                    raise
            else:
                yield client
                return
    with _own_server(loaded, model, n_ctx, variables or {}) as address, ServerClient(address) as client:
        yield client


@contextlib.contextmanager
def _own_server(
    loaded: LoadedSettings, model: str | Path | None, n_ctx: int | None, variables: Mapping[str, str]
) -> Generator[ServerAddress]:
    from jan_serve.supervisor.workers.child_process import own_command  # slow, and only needed here

    command = [*own_command("own-server")]
    if loaded.config_file_read:
        command += ["--config", str(loaded.config_file)]
    if isinstance(model, Path):
        command += ["--model", str(model)]
        output.note(f"Starting a server for {model.name}.")
    else:
        command += ["--no-default"] if model is not None else []
        reason = "No server runs" if n_ctx is None else f"For a context of {n_ctx} tokens"
        output.note(f"{reason}: starting one for this command.")
    if n_ctx is not None:
        command += ["--n-ctx", str(n_ctx)]
    with tempfile.TemporaryDirectory(prefix="jan-serve-") as folder:
        log = Path(folder) / "log"
        process = _start(command, log, variables)
        assert process.stdin is not None and process.stdout is not None
        try:
            url = process.stdout.readline().decode().strip()
            if not url:
                process.wait()
                raise CommandError("the server did not start", "`jan-serve doctor` checks the installation.")
            key = loaded.settings.api_keys[0] if loaded.settings.api_keys else None
            yield ServerAddress(url, "own", key, loaded.origins.get("api_keys", "default"))
        except CommandError as error:
            if error.status == FAILED:  # the server failed, not the request
                # Without lines that only repeat the error or name the request.
                lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
                told = [line for line in lines if error.message not in line and _REQUEST_LOGGER not in line]
                for line in told[-_SHOWN_LOG_LINES:]:
                    output.note(f"  {line}")
            raise
        finally:
            process.stdin.close()
            process.stdout.close()
            _stop(process)


def _start(command: list[str], log: Path, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            env={**os.environ, **variables},
            start_new_session=os.name == "posix",
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Wait for the server, whose standard input is closed; terminate, then kill it if it does not stop in time."""
    for limit_s, force in ((_STOP_S, process.terminate), (_TERMINATE_S, process.kill)):
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            force()
        else:
            return
    process.wait()
