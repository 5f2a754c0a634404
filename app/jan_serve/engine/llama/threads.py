"""The threads that compute: their number by default, and the pool of ggml."""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any

import psutil

from jan_serve.engine.llama.bindings import ggml_function, llama_function

_CPU = 0  # enum ggml_backend_dev_type
# More than sizeof(struct ggml_threadpool_params), which is a byte for each of 512 processors and five numbers.
_PARAMS_BYTES = 4096
_POLL_AT = 520
_DEFAULT_POLL = 50
_ONE_THREAD_BYTES = 16 * 1024 * 1024


def default_threads(weight_bytes: int) -> int:
    """The physical cores of this process: a second thread per core gains llama.cpp nothing. One thread for a tiny
    model: a token takes less time than the barriers between its graph nodes."""
    if weight_bytes < _ONE_THREAD_BYTES:
        return 1
    physical = psutil.cpu_count(logical=False) or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(physical, usable))


class ThreadPool:
    """`ggml_threadpool`: `count` threads, including the calling one. Freed with the last context that holds it.

    All its contexts must be used by one thread: a pool computes one graph at a time. Without a pool, a ggml without
    OpenMP would start new threads for each graph, which then wait for a core; OpenMP keeps its own threads, and no pool
    is created. Between graphs the threads sleep: by default they would spin for a tenth of a second (ggml's `poll`), on
    cores that other models and the server's front need."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pointer: int | None = None
        if count < 2:
            return
        new, free = _cpu_function("ggml_threadpool_new"), _cpu_function("ggml_threadpool_free")
        if not new or not free:
            return
        params = ctypes.create_string_buffer(_PARAMS_BYTES)
        ggml_function("ggml_threadpool_params_init", None, [ctypes.c_void_p, ctypes.c_int])(params, count)
        poll = ctypes.c_uint32.from_buffer(params, _POLL_AT)
        if poll.value == _DEFAULT_POLL:
            poll.value = 0
        self._pointer = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(new)(ctypes.addressof(params))
        if self._pointer is not None:
            free_pool = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(free)
            # Not at interpreter exit: another thread may still compute.
            weakref.finalize(self, free_pool, self._pointer).atexit = False

    def attach(self, context_pointer: Any) -> None:
        """`llama_attach_threadpool`. The context must hold this object for as long as it computes."""
        if self._pointer is not None:
            attach = llama_function("llama_attach_threadpool", None, [ctypes.c_void_p] * 3)
            attach(context_pointer, self._pointer, self._pointer)


def _cpu_function(name: str) -> int | None:
    """Address of a function that ggml's CPU backend exports by name; None if it does not."""
    by_type = ggml_function("ggml_backend_dev_by_type", ctypes.c_void_p, [ctypes.c_int])
    registry_of = ggml_function("ggml_backend_dev_backend_reg", ctypes.c_void_p, [ctypes.c_void_p])
    address = ggml_function(
        "ggml_backend_reg_get_proc_address", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]
    )
    device = by_type(_CPU)
    return address(registry_of(device), name.encode()) if device else None
