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
    """The requested adapters, else the one in the model's name. An adapter with a scale of 0 is left out. Raises
    AdapterNotFound, and InvalidRequest for a duplicate or a scale out of range."""
    if choices is None:
        choices = () if client.adapter is None else (AdapterChoice(client.adapter),)
    loaded = client.facts.adapters
    numbers = {adapter.name.casefold(): index for index, adapter in reversed(list(enumerate(loaded)))}
    scales: dict[int, float] = {}
    for choice in choices:
        chosen = choice.adapter
        index = chosen if isinstance(chosen, int) else numbers.get(chosen.casefold(), -1)
        if not 0 <= index < len(loaded):
            known = tuple(adapter.name for adapter in loaded)
            raise AdapterNotFound(str(chosen)[:64], client.name, known, param=_PARAM)
        if index in scales:
            raise InvalidRequest(f"lora: the adapter `{loaded[index].name}` is there twice", param=_PARAM)
        scale = loaded[index].scale if choice.scale is None else choice.scale
        if not -MAX_SCALE <= scale <= MAX_SCALE:
            raise InvalidRequest(
                f"lora: a scale must be from {-MAX_SCALE:g} to {MAX_SCALE:g}, got {scale:g}", param=_PARAM
            )
        scales[index] = scale
    return tuple(AdapterUse(index, scale) for index, scale in sorted(scales.items()) if scale != 0.0)
