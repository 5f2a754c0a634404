"""Facts of a running server for the settings of other programs."""

from __future__ import annotations

from typing import Any, cast

from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.errors import WRONG_USE, CommandError
from jan_serve.core.default_context import MAX_DEFAULT_N_CTX
from jan_serve.editors.facts import ServerFacts, editor_model


def read_facts(
    client: ServerClient, model: str | None, default: str | None, *, needs_key: bool
) -> ServerFacts:
    """model: the one to use; default: the one to use if it can chat. Raises CommandError if no model can chat."""
    rows = cast(list[dict[str, Any]], client.get("/v1/models")["data"])
    models = tuple(editor_model(row, MAX_DEFAULT_N_CTX) for row in rows)
    chats = [each for each in models if each.is_chat]
    first = next((each for each in chats if each.name == (model or default)), None)
    if first is None and model is not None:
        raise CommandError(
            f"{model}: the server has no chat model with this name.",
            "`jan-serve ls` lists the models.",
            WRONG_USE,
        )
    if first is None and not chats:
        raise CommandError("the server has no chat model.", "`jan-serve pull --list` suggests some.")
    return ServerFacts(url=client.url, needs_key=needs_key, models=models, model=first or chats[0])


def server_default(client: ServerClient) -> str | None:
    """The model of requests that name none. A proxy has none."""
    name = client.get("/models").get("default")
    return name if isinstance(name, str) else None
