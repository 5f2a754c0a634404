"""Where the parts of a model are: on which device, and why."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

SplitMode = Literal["none", "layer", "row"]


class PlacementOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the user decides. None or empty: automatic.

    n_gpu_layers: blocks from the last one and the output layer; -1 is all. n_cpu_moe: the experts of so many first
    blocks stay in main memory. tensor_split: proportions of layers on each device. main_gpu: the index of the only
    device (split_mode none) or of the one with small tensors (row). override_tensor: (regular expression, device), the
    first that matches counts.
    """

    n_gpu_layers: int | None = None
    n_cpu_moe: int | None = None
    tensor_split: tuple[float, ...] = ()
    split_mode: SplitMode = "layer"
    main_gpu: int = 0
    override_tensor: tuple[tuple[str, str], ...] = ()
    require_accelerator: bool = False


def parse_override(text: str) -> tuple[str, str]:
    """REGEX=DEVICE, taken apart. Raises ValueError."""
    pattern, _, device = text.rpartition("=")
    if not pattern or not device:
        raise ValueError(f"{text!r} is not of the form REGEX=DEVICE")
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    return pattern, device


class LlamaPlacement(msgspec.Struct, frozen=True):
    """devices: by name, in the order in which they take layers. tensor_split: layers of each, as counts or proportions.

    overrides: (regular expression, device) of tensors. None of these: everything in main memory.
    """

    n_gpu_layers: int = 0
    devices: tuple[str, ...] = ()
    tensor_split: tuple[float, ...] = ()
    split_mode: SplitMode = "layer"
    main_gpu: int = 0
    overrides: tuple[tuple[str, str], ...] = ()


class PlacedPart(msgspec.Struct, frozen=True, kw_only=True):
    """What one device holds. Sizes in bytes.

    kind: gpu, igpu, rpc or cpu (main memory). memory: of an accelerator what is free; of main memory all of it, with
    what an igpu may take. first, last: its blocks, None without any; output: also the output layer. experts_first,
    experts_last: the blocks whose experts it holds. weights, cache, compute: as planned. allocated: as llama.cpp
    reports after the load; 0 if it reports nothing.
    """

    device: str
    kind: str
    memory: int
    weights: int
    cache: int
    compute: int
    first: int | None = None
    last: int | None = None
    output: bool = False
    experts_first: int | None = None
    experts_last: int | None = None
    allocated: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.compute
