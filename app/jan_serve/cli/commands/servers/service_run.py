"""`jan-serve service run`: the command that service managers start. Like `serve`, without a terminal or flags."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TextIO

import typer

from jan_serve.cli.arguments import ConfigOption
from jan_serve.cli.commands.servers.serve import from_manager, serve_on
from jan_serve.cli.errors import WrongUse
from jan_serve.cli.options import load_settings
from jan_serve.cli.server.listen import AlreadyServing
from jan_serve.config import LoadedSettings
from jan_serve.daemon.launchd import SOCKET_KEY
from jan_serve.daemon.windows import host_service
from jan_serve.store.files import default_data_dir, private_folder, private_opener

if TYPE_CHECKING:
    from jan_serve.daemon.observer import ServerObserver

_MAX_ERRORS_BYTES: Final = 1 << 20


def run(
    config: ConfigOption = None,
    windows_service: Annotated[bool, typer.Option("--windows-service", hidden=True)] = False,
) -> None:
    """Serve as a background service. The units of `service install` run this command."""
    provide_streams(default_data_dir() / "logs" / "service.err")
    loaded = load_settings(config_file=config)
    if windows_service:
        raise typer.Exit(host_service(lambda observer: _serve(loaded, observer)))
    raise typer.Exit(_serve(loaded, None))


def _serve(loaded: LoadedSettings, observer: ServerObserver | None) -> int:
    with from_manager(SOCKET_KEY) as (inherited, notifier):
        try:
            return serve_on(loaded, inherited, observer or notifier, log_stream=_log_stream(loaded))
        except AlreadyServing as running:
            raise WrongUse(f"jan-serve is {running}", "Stop it first.") from None


def provide_streams(path: Path) -> None:
    """Write standard error to a file if there is none (pythonw.exe), and truncate a file that is too large."""
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]
        private_folder(path.parent)
        descriptor = private_opener(str(path), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        sys.stderr = os.fdopen(descriptor, "a", encoding="utf-8", errors="replace", buffering=1)
        sys.stdout = sys.stderr
    if _is_file(sys.stderr) and os.fstat(sys.stderr.fileno()).st_size > _MAX_ERRORS_BYTES:
        os.ftruncate(sys.stderr.fileno(), 0)


def _log_stream(loaded: LoadedSettings) -> TextIO | None:
    """Discard log lines if standard error is a file too: nothing would limit its size."""
    if loaded.settings.log_file is not None and _is_file(sys.stderr):
        return open(os.devnull, "w", encoding="utf-8")
    return None


def _is_file(stream: TextIO) -> bool:
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False  # a stream without a descriptor, as in tests
