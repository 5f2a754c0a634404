"""`jan-serve own-server` (hidden): a server on a free local port for one command; see `client.own_server`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from jan_serve.cli.commands.serve import run_server
from jan_serve.cli.options import ConfigOption
from jan_serve.cli.server.end_of_input import stop_at_end_of_input
from jan_serve.cli.server.listen import listen, url_of
from jan_serve.cli.settings import load_settings
from jan_serve.logs.log_lines import configure_logging
from jan_serve.wiring.model_sources import ModelSources
from jan_serve.wiring.parts import build_resolver


def own_server(
    config: ConfigOption = None,
    model: Annotated[Path | None, typer.Option("--model", help="Default model.")] = None,
    no_default: Annotated[
        bool, typer.Option("--no-default", help="Do not load the default model at the start.")
    ] = False,
    n_ctx: Annotated[int | None, typer.Option("--n-ctx", help="Context length in tokens.")] = None,
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
