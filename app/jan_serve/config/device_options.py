"""Settings of where the parts of a model go: accelerators and main memory."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from jan_serve.config.flags import MEMORY_PANEL, setting
from jan_serve.core.models.placement import parse_override


def _numbers(value: object) -> object:
    """`3,1` as a list, also as the only value of a repeatable flag."""
    texts = [value] if isinstance(value, str) else value
    if isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts):  # pyright: ignore[reportUnknownVariableType]
        return [item for text in texts for item in re.split(r"[,/]", text) if item.strip()]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return value  # pyright: ignore[reportUnknownVariableType]


def _one(value: object) -> object:
    """A pattern may hold commas, so a text is one of them."""
    return [value] if isinstance(value, str) else value


class DeviceOptions(BaseModel):
    """Devices of all models, or of one."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    n_gpu_layers: Literal["auto", "all"] | Annotated[int, Field(ge=0, le=10_000)] = setting(
        "auto",
        MEMORY_PANEL,
        "Layers on the accelerators: `auto` (as many as fit their free memory), `all`, or a number,"
        " counted from the output layer and the last block.",
        metavar="auto|all|N",
    )
    device: Annotated[str | None, Field(min_length=1)] = setting(
        None, MEMORY_PANEL, "Device to use, by its name in `jan-serve doctor`; `cpu` uses no accelerator."
    )
    n_cpu_moe: Annotated[int | None, Field(ge=0, le=10_000)] = setting(
        None,
        MEMORY_PANEL,
        "Blocks, from the first, whose experts (of a mixture) stay in main memory. Default: as few as"
        " the accelerators' free memory allows.",
    )
    tensor_split: Annotated[
        tuple[Annotated[float, Field(ge=0, le=1e9)], ...], BeforeValidator(_numbers), Field(max_length=64)
    ] = setting(
        (),
        MEMORY_PANEL,
        "Proportions of layers on each accelerator, in the order of `jan-serve doctor`, as `3,1`."
        " Default: decided by memory and speed.",
        metavar="N,N…",
    )
    split_mode: Literal["none", "layer", "row"] = setting(
        "layer",
        MEMORY_PANEL,
        "Several accelerators: each has some layers (`layer`), each has rows of every layer (`row`), or"
        " only `main_gpu` is used (`none`).",
    )
    main_gpu: Annotated[int, Field(ge=0, le=63)] = setting(
        0,
        MEMORY_PANEL,
        "Index of the only accelerator (`split_mode` `none`), or of the one for small tensors (`row`).",
    )
    override_tensor: Annotated[
        tuple[Annotated[str, Field(min_length=3, max_length=500)], ...],
        BeforeValidator(_one),
        Field(max_length=64),
    ] = setting(
        (),
        MEMORY_PANEL,
        "Tensors whose names match a regular expression go to this device; `CPU` is main memory.",
        metavar="REGEX=DEVICE",
    )
    require_accelerator: bool = setting(
        False, MEMORY_PANEL, "Fail to load a model rather than run all of it on the CPU."
    )

    @field_validator("override_tensor")
    @classmethod
    def _check_patterns(cls, overrides: tuple[str, ...]) -> tuple[str, ...]:
        for text in overrides:
            parse_override(text)
        return overrides
