"""Which LoRA adapters a request is computed with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from jan_serve.core.request import AdapterChoice
from jan_serve.errors import AdapterNotFound, InvalidRequest
from jan_serve.generation.ports import EngineClient
from jan_serve.ipc.messages import AdapterUse

MAX_SCALE: Final = 100.0
_PARAM: Final = "lora"


def chosen_adapters(asked: Sequence[AdapterChoice] | None, client: EngineClient) -> tuple[AdapterUse, ...]:
    """What applies: what was asked for, else what the model's name says. Scales of 0 apply nothing.

    Raises AdapterNotFound, and InvalidRequest for one that is named twice or a scale that is out of range.
    """
    if asked is None:
        asked = () if client.adapter is None else (AdapterChoice(client.adapter),)
    scales: dict[int, float] = {}
    for choice in asked:
        place = _place(choice.adapter, client)
        if place is None:
            known = tuple(adapter.name for adapter in client.facts.adapters)
            raise AdapterNotFound(str(choice.adapter)[:64], client.name, known, param=_PARAM)
        if place in scales:
            raise InvalidRequest(
                f"lora: the adapter `{client.facts.adapters[place].name}` is there twice", param=_PARAM
            )
        scale = client.facts.adapters[place].scale if choice.scale is None else choice.scale
        if not -MAX_SCALE <= scale <= MAX_SCALE:
            raise InvalidRequest(
                f"lora: a scale must be from {-MAX_SCALE:g} to {MAX_SCALE:g}, got {scale:g}", param=_PARAM
            )
        scales[place] = scale
    return tuple(AdapterUse(place, scale) for place, scale in sorted(scales.items()) if scale != 0.0)


def _place(adapter: str | int, client: EngineClient) -> int | None:
    if isinstance(adapter, int):
        return adapter if 0 <= adapter < len(client.facts.adapters) else None
    names = [each.name.casefold() for each in client.facts.adapters]
    return names.index(adapter.casefold()) if adapter.casefold() in names else None
