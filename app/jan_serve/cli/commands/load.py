"""`jan-serve load`: have a model in the memory of the running server before requests need it."""

from __future__ import annotations

from typing import Annotated

import typer

from jan_serve.cli.client.loading import load_model
from jan_serve.cli.commands.completion import complete_model
from jan_serve.cli.options import ConfigOption, JsonOption, KeepAliveOption, UrlOption, connection_to
from jan_serve.cli.output import Output


def load(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL", help="Models, as requests name them.", autocompletion=complete_model),
    ],
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Return when they are loaded; without, at once.")
    ] = True,
    keep_alive: KeepAliveOption = None,
    url: UrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Load models on the running server. Ctrl-C stops the load that is waited for."""
    output = Output()
    names: list[str] = []
    wishes = {"keep_alive": keep_alive} if keep_alive is not None else {}
    with connection_to(config, url) as connection:
        for model in models:
            if wait:
                names.append(load_model(connection, model, output, **wishes))
            else:
                names.append(
                    connection.post("/models/load", {"model": model, "wait": False, **wishes})["model"]
                )
    if as_json:
        output.json({"models": names, "loaded": wait})
        return
    for name in names:
        output.note(
            f"{name} is loaded." if wait else f"{name} is being loaded: `jan-serve ps` shows how far it is."
        )
