"""Free memory of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

_KEPT_FREE: Final = 0.1
"""Share of free main memory left to other programs."""


class FreeMemory(msgspec.Struct, frozen=True):
    """Free bytes. accelerators: of each device with dedicated memory."""

    main: int
    accelerators: Sequence[int] = ()

    @property
    def usable(self) -> int:
        """Bytes that a model may use. Its layers are split between accelerators and main memory, so these add up."""
        return int(self.main * (1 - _KEPT_FREE)) + sum(self.accelerators)
