"""The LoRA adapters of a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from jan_serve.core.request import AdapterChoice
from jan_serve.errors import AdapterNotFound, InvalidRequest
from jan_serve.generation.ports import EngineClient
from jan_serve.ipc.messages import AdapterUse

MAX_SCALE: Final = 100.0
_PARAM: Final = "lora"


def chosen_adapters(choices: Sequence[AdapterChoice] | None, client: EngineClient) -> tuple[AdapterUse, ...]:
    """The requested adapters, else the one in the model's name. An adapter with a scale of 0 is left out.

    Raises AdapterNotFound, and InvalidRequest for a duplicate or a scale out of range.
    """
    if choices is None:
        choices = () if client.adapter is None else (AdapterChoice(client.adapter),)
    scales: dict[int, float] = {}
    for choice in choices:
        index = _index(choice.adapter, client)
        if index is None:
            known = tuple(adapter.name for adapter in client.facts.adapters)
            raise AdapterNotFound(str(choice.adapter)[:64], client.name, known, param=_PARAM)
        if index in scales:
            raise InvalidRequest(
                f"lora: the adapter `{client.facts.adapters[index].name}` is there twice", param=_PARAM
            )
        scale = client.facts.adapters[index].scale if choice.scale is None else choice.scale
        if not -MAX_SCALE <= scale <= MAX_SCALE:
            raise InvalidRequest(
                f"lora: a scale must be from {-MAX_SCALE:g} to {MAX_SCALE:g}, got {scale:g}", param=_PARAM
            )
        scales[index] = scale
    return tuple(AdapterUse(index, scale) for index, scale in sorted(scales.items()) if scale != 0.0)


def _index(adapter: str | int, client: EngineClient) -> int | None:
    if isinstance(adapter, int):
        return adapter if 0 <= adapter < len(client.facts.adapters) else None
    names = [each.name.casefold() for each in client.facts.adapters]
    return names.index(adapter.casefold()) if adapter.casefold() in names else None
