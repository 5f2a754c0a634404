"""Single operations of ggml on the CPU, called through ctypes."""

# ggml has no stubs.
# pyright: basic

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
_SUFFIX = {"darwin": "dylib", "win32": "dll"}.get(sys.platform, "so")
_ROOM = 256 << 20
_NAME_BYTES = 64
"""Bytes of a tensor's name. What it is a view of, an offset, and its data lie before; its ``extra`` follows."""


class _InitParams(ctypes.Structure):
    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


class _Plan(ctypes.Structure):
    _fields_ = (
        *(("work_size", ctypes.c_size_t), ("work_data", ctypes.c_void_p), ("threads", ctypes.c_int)),
        *((name, ctypes.c_void_p) for name in ("threadpool", "abort", "abort_data")),
        ("use_ref", ctypes.c_bool),
    )


class Ggml:
    """A context of ggml: tensors, and the operations on them. Close it.

    What an operation reads and writes lies in memory of its own, of just its size, so that a sanitizer sees what is
    beyond (``kernels/sanitize``).
    """

    def __init__(self) -> None:
        folder = Path(llama_cpp.__file__).parent / "lib"
        self.base, self.cpu = (
            ctypes.CDLL(str(next(folder.glob(f"*{name}.{_SUFFIX}")))) for name in ("ggml-base", "ggml-cpu")
        )
        for name in ("init", "new_tensor", "get_data", "get_name", "new_graph"):
            getattr(self.base, f"ggml_{name}").restype = ctypes.c_void_p
        self.base.ggml_init.argtypes = [_InitParams]
        self._context = ctypes.c_void_p(self.base.ggml_init(_InitParams(_ROOM, None, False)))
        self.cpu.ggml_graph_plan.restype = _Plan
        self._kept: list[NDArray[Any]] = []

    def tensor(self, values: Array, kind: gguf.GGMLQuantizationType) -> ctypes.c_void_p:
        """``values`` with the outermost dimension first."""
        return self.stored(gguf.quantize(values.astype(np.float32), kind), values.shape, kind)

    def stored(
        self, data: NDArray[Any], shape: tuple[int, ...], kind: gguf.GGMLQuantizationType
    ) -> ctypes.c_void_p:
        """A tensor of that shape from a copy of its bytes."""
        return self.mapped(np.array(data, order="C"), shape, kind)

    def mapped(
        self, data: NDArray[Any], shape: tuple[int, ...], kind: gguf.GGMLQuantizationType
    ) -> ctypes.c_void_p:
        """A tensor of that shape whose bytes stay where they are, as in a file that is mapped."""
        sizes = (ctypes.c_int64 * len(shape))(*reversed(shape))
        tensor = ctypes.c_void_p(self.base.ggml_new_tensor(self._context, int(kind), len(shape), sizes))
        self._set_data(tensor, data)
        return tensor

    def _set_data(self, tensor: ctypes.c_void_p, data: NDArray[Any]) -> None:
        self._kept.append(data)
        self._pointer(tensor, -1).value = data.ctypes.data

    def _pointer(self, tensor: ctypes.c_void_p, words: int) -> ctypes.c_void_p:
        """One that lies so many words from the name."""
        return ctypes.c_void_p.from_address(self.base.ggml_get_name(tensor) + 8 * words)

    def order_cells(self, mask: ctypes.c_void_p, places: NDArray[np.integer[Any]]) -> None:
        """Tell attention the place of each cell in its sequence, as libllama does (``kernels/cell_order.h``)."""
        by_rank = np.argsort(places, kind="stable")
        order = np.concatenate([places, np.argsort(by_rank), by_rank]).astype(np.int32)
        self._kept.append(order)
        self._pointer(mask, _NAME_BYTES // 8).value = order.ctypes.data

    def operation(self, name: str, *inputs: Any) -> ctypes.c_void_p:
        """The result of ``ggml_NAME``, to be computed."""
        function = getattr(self.base, f"ggml_{name}")
        function.restype = ctypes.c_void_p
        return ctypes.c_void_p(function(self._context, *inputs))

    def computed(
        self,
        result: ctypes.c_void_p,
        shape: tuple[int, ...],
        threads: int,
        *,
        first: Iterable[ctypes.c_void_p] = (),
    ) -> Array:
        """A result's values, of that shape. first: what the graph computes before it."""
        graph = ctypes.c_void_p(self.base.ggml_new_graph(self._context))
        for node in (*first, result):
            self.base.ggml_build_forward_expand(graph, node)
        if not self._pointer(result, -3).value:  # no view
            self._set_data(result, np.empty(shape, np.float32))
        plan = self.cpu.ggml_graph_plan(graph, threads, None)
        work = np.empty(plan.work_size, np.uint8)
        plan.work_data = work.ctypes.data
        assert self.cpu.ggml_graph_compute(graph, ctypes.byref(plan)) == 0
        return self.values(result, shape)

    def values(self, tensor: ctypes.c_void_p, shape: tuple[int, ...]) -> Array:
        """A copy of what a tensor of floats holds."""
        data = ctypes.cast(self.base.ggml_get_data(tensor), ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(data, (int(np.prod(shape)),)).reshape(shape).copy()

    def close(self) -> None:
        self.base.ggml_free(self._context)


_OF_BLOCKS = {"Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "MXFP4"}
_OF_SUPERBLOCKS = {"Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"}


def is_multiplied_here(kind: gguf.GGMLQuantizationType) -> bool:
    """Whether products of weights of this type are ours on this processor (``kernels/products.h``)."""
    ggml = Ggml()
    try:
        if not ggml.cpu.ggml_cpu_has_avx2():
            return False
        has_wide = bool(ggml.cpu.ggml_cpu_has_avx512_vnni())
        if kind.name == "IQ4_XS":
            return has_wide
        is_whole = has_wide or not ggml.cpu.ggml_cpu_has_avx512()
        return kind.name in _OF_BLOCKS or (kind.name in _OF_SUPERBLOCKS and is_whole)
    finally:
        ggml.close()
