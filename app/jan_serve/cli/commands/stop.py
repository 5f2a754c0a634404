"""`jan-serve stop`: take models out of the memory of the running server. The server itself goes on."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from jan_serve.cli.commands.completion import complete_model
from jan_serve.cli.errors import WRONG_USE, CommandError
from jan_serve.cli.options import ConfigOption, JsonOption, UrlOption, connection_to
from jan_serve.cli.output import Output


def stop(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL", help="Models, as requests name them.", autocompletion=complete_model),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every model that is loaded.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="End the requests that run on them, instead of waiting for them.")
    ] = False,
    url: UrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Unload models; the server goes on. The next request that names one loads it again."""
    if bool(models) == everything:
        raise CommandError(
            "Name the models to unload, or --all.", "`jan-serve ps` shows what is loaded.", WRONG_USE
        )
    output = Output()
    with connection_to(config, url) as connection:
        listed: list[dict[str, Any]] = connection.get("/models")["data"]
        in_memory = {model["id"] for model in listed if model["status"]["value"] in ("loaded", "loading")}
        asked = sorted(in_memory) if everything else models or []
        stopped = [
            connection.post("/models/unload", {"model": name, "force": force})["model"] for name in asked
        ]
    if as_json:
        output.json({"unloaded": [name for name in stopped if name in in_memory]})
        return
    for name in stopped:
        output.note(f"{name} is unloaded." if name in in_memory else f"{name} was not loaded.")
    if not stopped:
        output.note("No model was loaded.")
