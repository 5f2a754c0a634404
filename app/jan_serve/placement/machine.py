"""Devices as the planner sees them, and what it assumes of their speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

_GB: Final = 1e9
# Bytes a second of weights that one stream reads. Rough figures of common hardware: only their order decides.
MAIN_MEMORY_SPEED: Final = 40 * _GB
_SPEED: Final = {"gpu": 400 * _GB, "igpu": 60 * _GB, "rpc": 50 * _GB}
# Seconds for one more device in a step, and for going to main memory and back within a block.
_HOP_S: Final = {"gpu": 30e-6, "igpu": 20e-6, "rpc": 400e-6}
_MAX_SPARE: Final = 512 << 20
_SPARE_SHARE: Final = 16


class Device(msgspec.Struct, frozen=True):
    """An accelerator that llama.cpp can use. kind: gpu, igpu (its memory is main memory) or rpc. free: bytes."""

    name: str
    kind: str
    free: int

    @property
    def usable(self) -> int:
        """Free bytes, less what is left to the driver and other programs: a sixteenth, at most 512 MiB."""
        return max(0, self.free - min(_MAX_SPARE, self.free // _SPARE_SHARE))

    @property
    def shares_main_memory(self) -> bool:
        return self.kind == "igpu"

    @property
    def speed(self) -> float:
        """Bytes that it reads in a second."""
        return _SPEED[self.kind]

    @property
    def hop_s(self) -> float:
        return _HOP_S[self.kind]


def usable_devices(devices: Sequence[Device]) -> tuple[Device, ...]:
    """Discrete devices exclude integrated ones, as in llama.cpp, which share the memory that the rest needs."""
    discrete = any(device.kind == "gpu" for device in devices)
    return tuple(
        device for device in devices if device.kind in _SPEED and not (discrete and device.kind == "igpu")
    )


def in_order(devices: Sequence[Device]) -> tuple[Device, ...]:
    """The usable ones, slowest kind first: the last device has the output layer."""
    order = ("rpc", "igpu", "gpu")
    return tuple(sorted(usable_devices(devices), key=lambda device: order.index(device.kind)))
