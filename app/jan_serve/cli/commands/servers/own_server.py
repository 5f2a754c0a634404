"""`jan-serve own-server` and `cluster-replica` (hidden): servers that end with their standard input.

Other processes of ours start them; see `client.own_server` and `cluster.replica`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from jan_serve.cli.arguments import ConfigOption, option
from jan_serve.cli.commands.servers.serve import run_server, serve_on
from jan_serve.cli.options import load_settings
from jan_serve.cli.server.listen import listen, url_of
from jan_serve.errors import SettingsError
from jan_serve.logs.log_lines import configure_logging
from jan_serve.wiring.model_sources import ModelSources
from jan_serve.wiring.parts import build_resolver


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
    settings = _settings(sys.stdin.buffer.readline())
    with listen(settings.pop("host", "127.0.0.1"), 0) as sock:
        host, port = sock.getsockname()[:2]
        loaded = load_settings({**settings, "host": host, "port": port})
        sys.stdout.write(url_of(sock) + "\n")
        sys.stdout.flush()
        stop_at_end_of_input()
        raise typer.Exit(serve_on(loaded, sock))


def _settings(line: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise SettingsError(f"standard input: no settings ({error})") from None
