"""A placement as the fields of llama_model_params."""

from __future__ import annotations

import ctypes
from typing import Any, Final

from jan_serve.core.models.placement import LlamaPlacement
from jan_serve.engine.llama import backend
from jan_serve.engine.llama.bindings import lib
from jan_serve.errors import SettingsError

_SPLIT_MODES: Final = {"none": 0, "layer": 1, "row": 2}  # enum llama_split_mode


class _Override(ctypes.Structure):
    """Layout of llama_model_tensor_buft_override."""

    _fields_ = [("pattern", ctypes.c_char_p), ("buft", ctypes.c_void_p)]


def placement_params(params: Any, placement: LlamaPlacement) -> list[Any]:
    """Set the fields. Returns what must live as long as the model. Raises SettingsError for an unknown device."""
    devices = [*(_known(name, backend.device_pointer(name)) for name in placement.devices), None]
    pointers = (ctypes.c_void_p * len(devices))(*devices)
    params.devices = ctypes.cast(pointers, ctypes.c_void_p)
    params.n_gpu_layers = placement.n_gpu_layers if placement.devices else 0
    params.split_mode = _SPLIT_MODES[placement.split_mode]
    params.main_gpu = placement.main_gpu if placement.split_mode == "row" else 0
    kept: list[Any] = [pointers]
    if placement.tensor_split:
        # llama.cpp reads a value for every device that it can have.
        most = int(lib.llama_max_devices())
        split = (ctypes.c_float * most)(*placement.tensor_split[:most])
        params.tensor_split = split
        kept.append(split)
    if placement.overrides:
        rows = [
            (pattern.encode("utf-8"), _known(name, backend.buffer_type(name)))
            for pattern, name in placement.overrides
        ]
        overrides = (_Override * (len(rows) + 1))(*rows, (None, None))
        params.tensor_buft_overrides = ctypes.cast(overrides, ctypes.c_void_p)
        kept += [overrides, rows]
    return kept


def _known(name: str, pointer: int | None) -> int:
    if pointer is None:
        known = ", ".join(info.name for info in backend.devices())
        raise SettingsError(f"device: ggml has no device {name!r}; it has {known}")
    return pointer
