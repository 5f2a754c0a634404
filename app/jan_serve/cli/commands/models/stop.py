"""`jan-serve stop`: unloads models of the running server."""

from __future__ import annotations

from typing import Annotated, Any

from jan_serve.cli.arguments import ConfigOption, JsonOption, UrlOption, model_argument, option
from jan_serve.cli.errors import WrongUse
from jan_serve.cli.options import running_server
from jan_serve.cli.output import output


def stop(
    models: Annotated[list[str] | None, model_argument("Names of models.")] = None,
    everything: Annotated[bool, option("--all", "Unload every model.")] = False,
    force: Annotated[bool, option("--force", "Abort running requests instead of waiting for them.")] = False,
    url: UrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Unload models; the server keeps running. The next request for a model loads it again."""
    if bool(models) == everything:
        raise WrongUse("Pass the models to unload, or --all.", "`jan-serve ps` lists the loaded models.")
    with running_server(config, url) as client:
        listed: list[dict[str, Any]] = client.get("/models")["data"]
        loaded = {model["id"] for model in listed if model["status"]["value"] in ("loaded", "loading")}
        names = sorted(loaded) if everything else models or []
        unloaded = [client.post("/models/unload", {"model": name, "force": force})["model"] for name in names]
    if as_json:
        output.json({"unloaded": [name for name in unloaded if name in loaded]})
        return
    for name in unloaded:
        output.note(f"{name} is unloaded." if name in loaded else f"{name} was not loaded.")
    if not unloaded:
        output.note("No model was loaded.")
