"""How much memory a model will need that is not here yet, and how much there is. Estimates from sizes alone: pure.

A model that is here is measured by its header instead, when it is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_WORKING_SPACE: Final = 500_000_000
"""Bytes for compute buffers and the worker process."""
_CACHE_SHARE: Final = 0.15
"""Bytes of an 8,192-token cache for each byte of 4-bit weights: 0.1 to 0.2 for the models of the catalogue."""
_LARGEST_CACHE: Final = 4_000_000_000
_KEPT_FREE: Final = 0.1
"""The share of free main memory that is left to other programs."""


@dataclass(frozen=True, slots=True)
class FreeMemory:
    """Bytes that can be used now. `accelerators`: free memory of each device that has its own."""

    main: int
    accelerators: Sequence[int] = ()

    @property
    def usable(self) -> int:
        """What a model may take. Layers are shared out between accelerators and main memory, so they add up."""
        return int(self.main * (1 - _KEPT_FREE)) + sum(self.accelerators)


def memory_needed(file_bytes: int, bits: int = 4) -> int:
    """Bytes to run a model whose files have `file_bytes`, with a context of 8,192 tokens.

    bits: of its weights; the cache depends on the model's shape, not on how its weights are stored.
    """
    at_four_bits = file_bytes * 4 // bits if bits > 0 else file_bytes
    cache = min(_LARGEST_CACHE, int(at_four_bits * _CACHE_SHARE))
    return file_bytes + cache + _WORKING_SPACE
