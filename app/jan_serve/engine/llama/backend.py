"""llama.cpp as a library: start, logging, devices, build features."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import sys
from collections.abc import Callable, Generator
from typing import Any

import psutil

from jan_serve.core.models import DeviceInfo
from jan_serve.engine.llama.bindings import bindings_version, ggml_function, lib
from jan_serve.errors import SettingsError

# enum ggml_backend_dev_type
_DEVICE_KINDS = {0: "cpu", 1: "gpu", 2: "igpu", 3: "accel"}
# enum ggml_log_level
_LOG_WARN = 3
_LOG_ERROR = 4
_LOG_CONTINUE = 5
_MAIN_MEMORY = "CPU"

# Harmless warnings: embeddings of a model that names no pooling are pooled anyway, adapters are computed beside
# reordered weights, and experts may be left in the mapped file.
_EXPECTED = (
    "model default pooling_type is [-1]",
    "cannot use buft",
    "tensor overrides to CPU are used with mmap enabled",
)

# As in "load_tensors:   CPU_Mapped model buffer size =   123.45 MiB".
_BUFFER = re.compile(r":\s+(?P<name>\S+)\s+[A-Za-z0-9 ]*buffer size =\s+(?P<size>[0-9.]+) MiB")

_state: dict[str, Any] = {}


def start(log: Callable[[str], None] | None = None, *, verbose: bool = False) -> None:
    """Initialise llama.cpp once per process. log: gets its warnings and errors, or all lines if verbose."""
    if "log_callback" in _state:
        return
    write = log or sys.stderr.write
    last = {"shown": False}

    def on_log(level: int, text: bytes | None, _user: Any) -> None:
        shown = last["shown"] if level == _LOG_CONTINUE else (verbose or (level >= _LOG_WARN))
        last["shown"] = shown
        line = text.decode("utf-8", "replace") if text else ""
        if "allocated" in _state and (found := _BUFFER.search(line)):
            _state["allocated"].append((found["name"], float(found["size"])))
        if level == _LOG_ERROR and _state.get("errors") is not None and line.strip():
            _state["errors"].append(line.strip())
        if shown and line and (verbose or not any(part in line for part in _EXPECTED)):
            write(line)

    callback = lib.llama_log_callback(on_log)
    _state["log_callback"] = callback  # ctypes callbacks must outlive their use
    lib.llama_log_set(callback, ctypes.c_void_p(0))
    if ggml_function("ggml_backend_reg_count", ctypes.c_size_t, [])() == 0:
        # They are separate libraries: of the CPU's, the one for this processor is loaded. By itself ggml would look
        # beside the interpreter and in the working folder.
        load = ggml_function("ggml_backend_load_all_from_path", None, [ctypes.c_char_p])
        load(os.fsencode(lib._base_path))
    lib.llama_backend_init()


def round_alike() -> None:
    """Have weights multiplied in batches of any size as for one token. Before the first decode, for the process."""
    os.environ["GGML_CPU_TILED_MM"] = "0"


def log_to(set_log: Callable[[Any, Any], None]) -> None:
    """Give the log callback of `start` to another library of llama.cpp."""
    set_log(_state["log_callback"], ctypes.c_void_p(0))


@contextlib.contextmanager
def allocations() -> Generator[dict[str, int]]:
    """Bytes that llama.cpp reports as allocated during the block, by device; known at its end. One thread at a time.
    llama.cpp has no such function in C; its log has the figures."""
    found: dict[str, int] = {}
    rows: list[tuple[str, float]] = []
    _state["allocated"] = rows
    try:
        yield found
    finally:
        del _state["allocated"]
        get_type = ggml_function("ggml_backend_dev_buffer_type", ctypes.c_void_p, [ctypes.c_void_p])
        get_name = ggml_function("ggml_backend_buft_name", ctypes.c_char_p, [ctypes.c_void_p])
        # Buffers of main memory have several names: CPU, CPU_Mapped, CUDA_Host, ...
        devices = {_text(get_name(get_type(each))): _name(each) for each in _device_pointers()}
        for name, mib in rows:
            device = devices.get(name, _MAIN_MEMORY)
            found[device] = found.get(device, 0) + int(mib * 2**20)


@contextlib.contextmanager
def last_errors() -> Generator[list[str]]:
    """The lines of llama.cpp's errors during the block. One thread at a time; a block within has them first."""
    lines: list[str] = []
    outer: list[str] | None = _state.get("errors")
    _state["errors"] = lines
    try:
        yield lines
    finally:
        _state["errors"] = outer
        if outer is not None:
            outer += lines


def _device_pointers() -> list[int]:
    count = ggml_function("ggml_backend_dev_count", ctypes.c_size_t, [])
    get = ggml_function("ggml_backend_dev_get", ctypes.c_void_p, [ctypes.c_size_t])
    return [int(get(i)) for i in range(count())]


class _Caps(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_bool)
        for name in ("async_", "host_buffer", "buffer_from_host_ptr", "events", "mmap_support")
    ]


class _Props(ctypes.Structure):
    """Layout of ggml_backend_dev_props."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("memory_free", ctypes.c_size_t),
        ("memory_total", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("device_id", ctypes.c_char_p),
        ("caps", _Caps),
    ]


def _device_info(pointer: int) -> DeviceInfo:
    props = _props(pointer)
    registry = ggml_function("ggml_backend_dev_backend_reg", ctypes.c_void_p, [ctypes.c_void_p])
    get_name = ggml_function("ggml_backend_reg_name", ctypes.c_char_p, [ctypes.c_void_p])
    kind = _DEVICE_KINDS.get(int(props.type), "other")
    if _text(get_name(registry(pointer))).startswith("RPC"):
        kind = "rpc"
    elif kind == "gpu" and sys.platform == "darwin" and platform.machine() == "arm64":
        kind = "igpu"  # the GPU of Apple silicon uses main memory
    free = int(props.memory_free)
    if kind == "cpu":  # ggml reports all main memory as free (ggml_backend_cpu_device_get_memory)
        free = min(free, int(psutil.virtual_memory().available))
    return DeviceInfo(
        name=_text(props.name),
        description=_text(props.description),
        kind=kind,
        free_bytes=free,
        total_bytes=int(props.memory_total),
        id=_text(props.device_id),
    )


def _props(pointer: int) -> _Props:
    props = _Props()
    get = ggml_function("ggml_backend_dev_get_props", None, [ctypes.c_void_p, ctypes.POINTER(_Props)])
    get(pointer, ctypes.byref(props))
    return props


def _name(device: int) -> str:
    return _text(ggml_function("ggml_backend_dev_name", ctypes.c_char_p, [ctypes.c_void_p])(device))


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")


def devices() -> tuple[DeviceInfo, ...]:
    """The devices of ggml, with their current memory."""
    return tuple(_device_info(pointer) for pointer in _device_pointers())


def accelerators() -> tuple[DeviceInfo, ...]:
    """The devices that hold weights, each once although several backends may see it."""
    found: list[DeviceInfo] = []
    for device in devices():
        is_known = device.id and device.id in [each.id for each in found]
        if device.kind in ("gpu", "igpu", "rpc") and not is_known:
            found.append(device)
    return tuple(found)


def device_pointer(name: str) -> int:
    """`ggml_backend_dev_t` of the device with this name (case-insensitive). Raises SettingsError if there is none."""
    named = {_name(pointer): pointer for pointer in reversed(_device_pointers())}
    for known, pointer in named.items():
        if known.lower() == name.lower():
            return pointer
    raise SettingsError(f"device: ggml has no device {name!r}; it has {', '.join(named)}")


def computes_apart(name: str) -> bool:
    """Whether a device takes work, and computes it while this process goes on."""
    return bool(_props(device_pointer(name)).caps.async_)


def buffer_type(device: str) -> int:
    """`ggml_backend_buffer_type_t` of the device with this name, for overrides of tensors. Raises SettingsError."""
    get = ggml_function("ggml_backend_dev_buffer_type", ctypes.c_void_p, [ctypes.c_void_p])
    return int(get(device_pointer(device)))


def version() -> str:
    """Versions of llama.cpp and of the bindings, which pin one commit of it."""
    return f"{lib.llama_version().decode('utf-8', 'replace')} ({bindings_version()})"


def build_features() -> dict[str, Any]:
    """Features of this llama.cpp build, for `doctor`."""
    return {
        "llama_cpp": version(),
        "system_info": lib.llama_print_system_info().decode("utf-8", "replace").strip(),
        "supports_gpu_offload": bool(lib.llama_supports_gpu_offload()),
        "supports_mmap": bool(lib.llama_supports_mmap()),
        "supports_mlock": bool(lib.llama_supports_mlock()),
        "max_parallel_sequences": int(lib.llama_max_parallel_sequences()),
    }
