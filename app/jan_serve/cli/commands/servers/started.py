"""Servers that other programs start: service managers, `run` and others (`own-server`), and Ray (`cluster-replica`)."""

from __future__ import annotations

import os
import signal
import stat
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import msgspec
import typer

from jan_serve.cli.arguments import ConfigOption, option
from jan_serve.cli.commands.servers.serve import from_manager, run_server, serve_on
from jan_serve.cli.errors import WrongUse
from jan_serve.cli.options import load_settings
from jan_serve.cli.server.listen import AlreadyServing, listen, url_of
from jan_serve.config import LoadedSettings
from jan_serve.daemon.launchd import SOCKET_KEY
from jan_serve.daemon.windows import host_service
from jan_serve.errors import SettingsError
from jan_serve.logs.log_lines import configure_logging
from jan_serve.store.files import default_data_dir, private_folder, private_opener
from jan_serve.wiring.model_sources import ModelSources
from jan_serve.wiring.parts import build_resolver

if TYPE_CHECKING:
    from jan_serve.daemon.running import ServerObserver


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


def stop_at_end_of_input() -> None:
    """Let the end of standard input stop this process as SIGTERM does. Returns at once."""
    threading.Thread(target=_wait, daemon=True).start()


def _wait() -> None:
    sys.stdin.buffer.read()
    if os.name == "posix":
        os.kill(os.getpid(), signal.SIGTERM)  # a signal to the process wakes the main thread
    else:
        signal.raise_signal(signal.SIGTERM)


def own_server(
    config: ConfigOption = None,
    model: Annotated[Path | None, option("--model", "Default model.")] = None,
    no_default: Annotated[
        bool, option("--no-default", "Do not load the default model at the start.")
    ] = False,
    n_ctx: Annotated[int | None, option("--n-ctx", "Context length in tokens.")] = None,
) -> None:
    """Serve on a free local port until the end of standard input. The first line of output is the address."""
    flags = {
        "host": "127.0.0.1",
        "port": 0,
        "model": str(model) if model is not None else None,
        "n_ctx": n_ctx,
    }
    loaded = load_settings(flags, config)
    settings = loaded.settings
    book = loaded.book()
    resolver = build_resolver(settings, book)
    preloads = not no_default and resolver.default().is_expected
    with listen(settings.host, settings.port) as sock:
        configure_logging(settings.log_level, as_json=settings.log_json)
        sys.stdout.write(url_of(sock) + "\n")
        sys.stdout.flush()
        stop_at_end_of_input()
        sources = ModelSources(resolver, settings, book)
        raise typer.Exit(run_server(settings, resolver, sources, sock, preloads=preloads))


def cluster_replica() -> None:
    """Serve with the settings in the first line of standard input, until its end. Prints the address."""
    try:
        settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise SettingsError(f"standard input: no settings ({error})") from None
    with listen(settings.pop("host", "127.0.0.1"), 0) as sock:
        host, port = sock.getsockname()[:2]
        loaded = load_settings({**settings, "host": host, "port": port})
        sys.stdout.write(url_of(sock) + "\n")
        sys.stdout.flush()
        stop_at_end_of_input()
        raise typer.Exit(serve_on(loaded, sock))
