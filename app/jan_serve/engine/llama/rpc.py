"""ggml's RPC backend: devices of other machines, and lending ours. Part of the default build (GGML_RPC).

Its functions are reached through the backend's registry, as it may be a library that is loaded at run time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

from jan_serve.engine.llama import backend
from jan_serve.engine.llama.bindings import ggml_function
from jan_serve.errors import SettingsError

# Index of get_memory in ggml_backend_device_i, whose table begins each ggml_backend_device.
_GET_MEMORY: Final = 2
_GetMemory = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_kept: list[Any] = []


def check_built() -> None:
    """Raises SettingsError if llama.cpp is built without RPC."""
    _registry()


def add_server(endpoint: str) -> None:
    """Register the devices of a server, HOST:PORT. ggml ends the process if it does not answer as it should.

    Raises SettingsError if llama.cpp is built without RPC.
    """
    add = _function("ggml_backend_rpc_add_server", ctypes.c_void_p, [ctypes.c_char_p])
    registry = add(endpoint.encode())
    if registry:
        ggml_function("ggml_backend_register", None, [ctypes.c_void_p])(registry)


def serve(endpoint: str, devices: list[str], threads: int) -> None:
    """Serve these devices, one client at a time, until the process ends. Returns only if it cannot listen.

    Raises SettingsError for an unknown device, or if llama.cpp is built without RPC.
    """
    start = _function(
        "ggml_backend_rpc_start_server",
        None,
        [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p],
    )
    pointers: list[int] = []
    for name in devices:
        pointer = backend.device_pointer(name)
        if pointer is None:
            raise SettingsError(f"device: ggml has no device {name!r}")
        pointers.append(pointer)
    array = (ctypes.c_void_p * len(pointers))(*pointers)
    start(endpoint.encode(), None, threads, len(pointers), array)


def report_memory(device: str, measure: Callable[[], tuple[int, int]]) -> None:
    """Let ggml report these bytes (free, total) for a device, in this process only.

    ggml reports all main memory of a machine as free. Raises SettingsError for an unknown device.
    """
    pointer = backend.device_pointer(device)
    if pointer is None:
        raise SettingsError(f"device: ggml has no device {device!r}")

    def get_memory(_device: Any, free: Any, total: Any) -> None:
        free[0], total[0] = measure()

    callback = _GetMemory(get_memory)
    _kept.append(callback)
    table = (ctypes.c_void_p * (_GET_MEMORY + 1)).from_address(pointer)
    table[_GET_MEMORY] = ctypes.cast(callback, ctypes.c_void_p).value


def _registry() -> int:
    find = ggml_function("ggml_backend_reg_by_name", ctypes.c_void_p, [ctypes.c_char_p])
    registry: int | None = find(b"RPC")
    if registry is None:
        raise SettingsError("rpc: this llama.cpp is built without GGML_RPC: install jan-serve's own build")
    return registry


def _function(name: str, result: Any, arguments: list[Any]) -> Any:
    registry = _registry()
    get = ggml_function(
        "ggml_backend_reg_get_proc_address", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]
    )
    return ctypes.CFUNCTYPE(result, *arguments)(get(registry, name.encode()))
