"""llama.cpp as a library: start, log, devices, build features."""

from __future__ import annotations

import contextlib
import ctypes
import platform
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import psutil

from jan_serve.core.model_facts import DeviceInfo
from jan_serve.engine.llama.bindings import bindings_version, ggml_function, lib

# enum ggml_backend_dev_type
_DEVICE_KINDS = {0: "cpu", 1: "gpu", 2: "igpu", 3: "accel"}
# enum ggml_log_level
_LOG_WARN = 3
_LOG_ERROR = 4
_LOG_CONTINUE = 5

# Warnings about what is as it should be: embeddings of a model that names no pooling are pooled all the same, and
# adapters are computed beside weights that were put in another order.
_EXPECTED = ("model default pooling_type is [-1]", "cannot use buft")

_state: dict[str, Any] = {}


def start(log: Callable[[str], None] | None = None, *, verbose: bool = False) -> None:
    """Initialise llama.cpp once per process. `log` gets llama.cpp's warnings and errors (all lines when verbose)."""
    if "log_callback" in _state:
        return
    write = log or _write_stderr
    last = {"shown": False}

    def on_log(level: int, text: bytes | None, _user: Any) -> None:
        shown = last["shown"] if level == _LOG_CONTINUE else (verbose or (level >= _LOG_WARN))
        last["shown"] = shown
        line = text.decode("utf-8", "replace") if text else ""
        if level == _LOG_ERROR and "errors" in _state:
            _state["errors"].append(line)
        if shown and line and (verbose or not any(part in line for part in _EXPECTED)):
            write(line)

    callback = lib.llama_log_callback(on_log)
    _state["log_callback"] = callback  # ctypes callbacks must outlive their use
    lib.llama_log_set(callback, ctypes.c_void_p(0))
    lib.llama_backend_init()


@dataclass(slots=True)
class LastError:
    """text: what llama.cpp said last of what went wrong, without the function's name; "" where it said nothing."""

    text: str = ""


@contextlib.contextmanager
def last_error() -> Generator[LastError]:
    """Listen to llama.cpp's errors while the block runs. By one thread at a time."""
    found = LastError()
    lines: list[str] = []
    _state["errors"] = lines
    try:
        yield found
    finally:
        del _state["errors"]
        said = [line.strip() for line in lines if line.strip()]
        if said:
            found.text = said[-1].rpartition(": failed to apply lora adapter: ")[2].rstrip(".")


def _write_stderr(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _device_pointers() -> list[int]:
    count = ggml_function("ggml_backend_dev_count", ctypes.c_size_t, [])
    get = ggml_function("ggml_backend_dev_get", ctypes.c_void_p, [ctypes.c_size_t])
    return [int(get(i)) for i in range(count())]


def _device_info(pointer: int) -> DeviceInfo:
    name = ggml_function("ggml_backend_dev_name", ctypes.c_char_p, [ctypes.c_void_p])
    description = ggml_function("ggml_backend_dev_description", ctypes.c_char_p, [ctypes.c_void_p])
    kind = ggml_function("ggml_backend_dev_type", ctypes.c_int, [ctypes.c_void_p])
    memory = ggml_function(
        "ggml_backend_dev_memory",
        None,
        [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)],
    )
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    memory(pointer, ctypes.byref(free), ctypes.byref(total))
    device_kind = _kind(kind(pointer))
    # ggml supposes that all of the main memory is free (ggml_backend_cpu_device_get_memory).
    available = psutil.virtual_memory().available if device_kind == "cpu" else free.value
    return DeviceInfo(
        name=(name(pointer) or b"").decode("utf-8", "replace"),
        description=(description(pointer) or b"").decode("utf-8", "replace"),
        kind=device_kind,
        free_bytes=min(free.value, available),
        total_bytes=total.value,
    )


def _kind(ggml_kind: int) -> str:
    """As ggml says it, but that the GPU of Apple silicon, whose memory is the main memory, is an integrated one."""
    if _DEVICE_KINDS.get(ggml_kind) == "gpu" and sys.platform == "darwin" and platform.machine() == "arm64":
        return "igpu"
    return _DEVICE_KINDS.get(ggml_kind, "other")


def devices() -> tuple[DeviceInfo, ...]:
    """The devices ggml can compute on, with the memory they report now."""
    return tuple(_device_info(pointer) for pointer in _device_pointers())


def device_pointer(name: str) -> int | None:
    """`ggml_backend_dev_t` of the device with this name (case-insensitive), for llama_model_params.devices."""
    for pointer in _device_pointers():
        if _device_info(pointer).name.lower() == name.lower():
            return pointer
    return None


def version() -> str:
    """Versions of llama.cpp and of the bindings, which are pinned to one commit of it."""
    return f"{lib.llama_version().decode('utf-8', 'replace')} ({bindings_version})"


def build_features() -> dict[str, Any]:
    """What this build of llama.cpp can do, for `doctor`."""
    return {
        "llama_cpp": version(),
        "system_info": lib.llama_print_system_info().decode("utf-8", "replace").strip(),
        "supports_gpu_offload": bool(lib.llama_supports_gpu_offload()),
        "supports_mmap": bool(lib.llama_supports_mmap()),
        "supports_mlock": bool(lib.llama_supports_mlock()),
        "max_parallel_sequences": int(lib.llama_max_parallel_sequences()),
    }
