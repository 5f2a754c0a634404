"""The use of a LoRA adapter by a request."""

from __future__ import annotations

import msgspec


class AdapterUse(msgspec.Struct, frozen=True, order=True, array_like=True):
    """An adapter by its index in EngineSettings.adapters. scale: not 0."""

    index: int
    scale: float
