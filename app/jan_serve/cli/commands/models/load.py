"""`jan-serve load`: loads models on the running server before requests need them."""

from __future__ import annotations

from typing import Annotated

from jan_serve.cli.arguments import (
    ConfigOption,
    JsonOption,
    KeepAliveOption,
    UrlOption,
    model_argument,
    option,
)
from jan_serve.cli.client.loading import load_model
from jan_serve.cli.options import running_server
from jan_serve.cli.output import output


def load(
    models: Annotated[list[str], model_argument("Names of models.")],
    wait: Annotated[
        bool, option("--wait/--no-wait", "Return once the models are loaded, or at once.")
    ] = True,
    keep_alive: KeepAliveOption = None,
    url: UrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Load models on the running server. Ctrl-C stops the current load."""
    names: list[str] = []
    fields = {"keep_alive": keep_alive} if keep_alive is not None else {}
    with running_server(config, url) as client:
        for model in models:
            if wait:
                names.append(load_model(client, model, **fields))
            else:
                names.append(client.post("/models/load", {"model": model, "wait": False, **fields})["model"])
    if as_json:
        output.json({"models": names, "loaded": wait})
        return
    for name in names:
        output.note(
            f"{name} is loaded." if wait else f"{name} is loading: `jan-serve ps` shows the progress."
        )
