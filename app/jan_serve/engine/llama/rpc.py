"""ggml's RPC backend gives a worker the devices of other machines, and lends ours.

It is part of the default build (GGML_RPC). Its functions are reached through the backend's registry, as it may be a
library that is loaded at run time. ggml ends the process on a peer that refuses, hangs up or speaks another version,
so each is greeted here first. Peers that do not answer are left out, with the reason.
"""

from __future__ import annotations

import ctypes
import logging
import socket
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
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


def add_server(endpoint: str) -> None:
    """Register the devices of a server, HOST:PORT. ggml ends the process if it does not answer as it should."""
    add = _function("ggml_backend_rpc_add_server", ctypes.c_void_p, [ctypes.c_char_p])
    if registry := add(endpoint.encode()):
        ggml_function("ggml_backend_register", None, [ctypes.c_void_p])(registry)


def serve(endpoint: str, devices: list[str], threads: int) -> None:
    """Serve these devices, one client at a time, until the process ends. Returns only if it cannot listen. Raises
    SettingsError for an unknown device, or if llama.cpp is built without RPC."""
    start = _function(
        "ggml_backend_rpc_start_server",
        None,
        [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p],
    )
    array = (ctypes.c_void_p * len(devices))(*map(backend.device_pointer, devices))
    start(endpoint.encode(), None, threads, len(devices), array)


def report_memory(device: str, measure: Callable[[], tuple[int, int]]) -> None:
    """Let ggml report these bytes (free, total) for a device, in this process only. ggml reports all main memory of a
    machine as free. Raises SettingsError for an unknown device."""

    def get_memory(_device: Any, free: Any, total: Any) -> None:
        free[0], total[0] = measure()

    callback = _GetMemory(get_memory)
    _kept.append(callback)
    table = (ctypes.c_void_p * (_GET_MEMORY + 1)).from_address(backend.device_pointer(device))
    table[_GET_MEMORY] = ctypes.cast(callback, ctypes.c_void_p).value


def check_built() -> int:
    """The registry of the backend. Raises SettingsError if llama.cpp is built without RPC."""
    find = ggml_function("ggml_backend_reg_by_name", ctypes.c_void_p, [ctypes.c_char_p])
    registry: int | None = find(b"RPC")
    if registry is None:
        raise SettingsError("rpc: this llama.cpp is built without GGML_RPC: install jan-serve's own build")
    return registry


def _function(name: str, result: Any, arguments: list[Any]) -> Any:
    registry = check_built()
    get = ggml_function(
        "ggml_backend_reg_get_proc_address", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]
    )
    return ctypes.CFUNCTYPE(result, *arguments)(get(registry, name.encode()))


logger = logging.getLogger(__name__)

PROTOCOL: Final = (7, 0)  # RPC_PROTO_MAJOR_VERSION, RPC_PROTO_MINOR_VERSION of ggml-h in the pinned llama.cpp
_HELLO: Final = 14  # RPC_CMD_HELLO
_CAPABILITIES: Final = 24  # RPC_CONN_CAPS_SIZE
_ANSWER: Final = struct.Struct("<QBBBx")
_CONNECT_S: Final = 5.0
_ANSWER_S: Final = 20.0  # a peer of ours starts a process for a new client


def connect_peers(endpoints: Sequence[str]) -> dict[str, str]:
    """Register the devices of those that answer; blocks. Returns the reasons of the others, by endpoint. Raises
    SettingsError if llama.cpp is built without RPC."""
    if not endpoints:
        return {}
    check_built()
    with ThreadPoolExecutor(len(endpoints)) as pool:
        problems = dict(zip(endpoints, pool.map(problem_of, endpoints), strict=True))
    for endpoint, problem in problems.items():
        if problem is None:
            add_server(endpoint)
        else:
            logger.warning("rpc: %s is left out: %s", endpoint, problem)
    return {endpoint: problem for endpoint, problem in problems.items() if problem is not None}


def problem_of(endpoint: str) -> str | None:
    """Why a peer cannot be used; None if it greets back. Blocks for seconds at most."""
    host, _, port = endpoint.rpartition(":")
    try:
        # As ggml resolves it: to IPv4 alone.
        address = socket.gethostbyname(host)
        with socket.create_connection((address, int(port)), timeout=_CONNECT_S) as connection:
            connection.settimeout(_ANSWER_S)
            connection.sendall(struct.pack("<BQ", _HELLO, _CAPABILITIES) + bytes(_CAPABILITIES))
            answer = _received(connection, _ANSWER.size)
    except TimeoutError:
        return "it does not answer in time, or serves another client"
    except OSError as error:
        return f"it cannot be reached: {error.strerror or error}"
    except UnicodeError:
        return "it cannot be reached: its name is not a host name"
    if answer is None:
        return "it hung up: its network allow-list may lack this machine"
    _, major, minor, patch = _ANSWER.unpack(answer)
    if major != PROTOCOL[0] or minor > PROTOCOL[1]:
        ours = ".".join(map(str, PROTOCOL))
        return f"it speaks version {major}.{minor}.{patch} of ggml's RPC protocol, and this server {ours}"
    return None


def _received(connection: socket.socket, size: int) -> bytes | None:
    """None if the peer hangs up before."""
    data = b""
    while len(data) < size and (piece := connection.recv(size - len(data))):
        data += piece
    return data if len(data) == size else None
