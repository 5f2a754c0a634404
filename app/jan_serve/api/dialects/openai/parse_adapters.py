"""The field `lora`, as core values. Pure.

llama-server's form is a list of {id, scale}, where the id counts the adapters of the model; names go in its place.
"""

from __future__ import annotations

from collections.abc import Sequence

from jan_serve.api.dialects.openai.wire_common import Adapter
from jan_serve.core.request import AdapterChoice
from jan_serve.errors import InvalidRequest


def adapter_choices(lora: Sequence[str | Adapter] | None) -> tuple[AdapterChoice, ...] | None:
    """None where the field is absent. Raises InvalidRequest for an object that names no adapter, or two."""
    if lora is None:
        return None
    return tuple(AdapterChoice(item) if isinstance(item, str) else _choice(item) for item in lora)


def _choice(item: Adapter) -> AdapterChoice:
    named = [value for value in (item.name, item.id) if value is not None]
    if len(named) != 1:
        raise InvalidRequest("lora: each object needs a `name` or an `id`, and not both", param="lora")
    return AdapterChoice(named[0], item.scale)
