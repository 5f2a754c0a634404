"""Says of a model without a chat template that it does not chat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast
from urllib.parse import quote

from jan_serve.cli.client.server_client import OtherProgram, ServerClient, UnknownModel
from jan_serve.cli.output import Output

NOTICE: Final = "This file has no chat template: it is a base model that continues text, not one that chats."


def note_base_model(client: ServerClient, names: Sequence[str], output: Output) -> None:
    """names: of one loaded model, as typed and in full. A proxy does not say what its models are."""
    try:
        has_template = bool(client.get("/props", {"model": names[0]}, patient=True)["chat_template"])
    except OtherProgram:
        return
    if not has_template and not any(_is_told_to_chat(client, name) for name in dict.fromkeys(names)):
        output.note(NOTICE)


def _is_told_to_chat(client: ServerClient, name: str) -> bool:
    """Whether the configuration, or the variant of that name, has a template for it."""
    try:
        card = client.get(f"/v1/models/{quote(name)}")
    except UnknownModel:  # the name was shortened
        return False
    return bool(cast(dict[str, Any], card.get("meta") or {}).get("has_chat_template"))
