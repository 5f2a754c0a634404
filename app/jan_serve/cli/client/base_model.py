"""Says of a model without a chat template that it does not chat."""

from __future__ import annotations

from typing import Any, Final, cast
from urllib.parse import quote

from jan_serve.cli.client.server_client import ServerClient, UnknownModel
from jan_serve.cli.output import Output

NOTICE: Final = "This file has no chat template: it is a base model that continues text, not one that chats."


def note_base_model(client: ServerClient, names: tuple[str, ...], output: Output) -> None:
    """names: of one model; the first that the server lists counts, as a variant may have a template of its own."""
    for name in dict.fromkeys(names):
        try:
            card = client.get(f"/v1/models/{quote(name)}")
        except UnknownModel:
            continue
        meta = cast(dict[str, Any], card.get("meta") or {})
        if meta.get("has_chat_template") is False and meta.get("pooling") in (None, "none"):
            output.note(NOTICE)
        return
