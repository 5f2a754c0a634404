"""How much memory a model will need that is not here yet, and how much there is. Estimates from sizes alone: pure.

A model that is here is measured by its header instead, when it is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

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
