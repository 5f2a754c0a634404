"""llama.cpp as a library: start, logging, devices, build features."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import sys
from collections.abc import Callable, Generator
from typing import Any

import msgspec
import psutil

from jan_serve.core.models.model_facts import DeviceInfo
from jan_serve.engine.llama.bindings import bindings_version, ggml_function, lib

# enum ggml_backend_dev_type
_DEVICE_KINDS = {0: "cpu", 1: "gpu", 2: "igpu", 3: "accel"}
# enum ggml_log_level
_LOG_WARN = 3
_LOG_ERROR = 4
_LOG_CONTINUE = 5

# Harmless warnings: embeddings of a model that names no pooling are pooled anyway, and adapters are computed beside
# reordered weights.
_EXPECTED = ("model default pooling_type is [-1]", "cannot use buft")

_state: dict[str, Any] = {}


def start(log: Callable[[str], None] | None = None, *, verbose: bool = False) -> None:
    """Initialise llama.cpp once per process. log: gets its warnings and errors, or all lines if verbose."""
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
    _load_backends()
    lib.llama_backend_init()


def _load_backends() -> None:
    """Load ggml's backends if they are separate libraries: of the CPU's, the one for this processor.

    By itself ggml would look beside the interpreter and in the working folder.
    """
    if ggml_function("ggml_backend_reg_count", ctypes.c_size_t, [])() == 0:
        load = ggml_function("ggml_backend_load_all_from_path", None, [ctypes.c_char_p])
        load(os.fsencode(lib._base_path))


def log_to(set_log: Callable[[Any, Any], None]) -> None:
    """Give the log callback of `start` to another library of llama.cpp."""
    set_log(_state["log_callback"], ctypes.c_void_p(0))


class LastError(msgspec.Struct):
    """text: the last error of llama.cpp, without the function name; "" if there is none. lines: all of them."""

    text: str = ""
    lines: tuple[str, ...] = ()


@contextlib.contextmanager
def last_error() -> Generator[LastError]:
    """Capture llama.cpp's errors during the block. One thread at a time."""
    found = LastError()
    lines: list[str] = []
    _state["errors"] = lines
    try:
        yield found
    finally:
        del _state["errors"]
        errors = [line.strip() for line in lines if line.strip()]
        if errors:
            found.lines = tuple(errors)
            found.text = errors[-1].rpartition(": failed to apply lora adapter: ")[2].rstrip(".")


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
    # ggml reports all main memory as free (ggml_backend_cpu_device_get_memory).
    available = psutil.virtual_memory().available if device_kind == "cpu" else free.value
    return DeviceInfo(
        name=(name(pointer) or b"").decode("utf-8", "replace"),
        description=(description(pointer) or b"").decode("utf-8", "replace"),
        kind=device_kind,
        free_bytes=min(free.value, available),
        total_bytes=total.value,
    )


def _kind(ggml_kind: int) -> str:
    """ggml's kind, except that the GPU of Apple silicon, which uses main memory, is an integrated one."""
    if _DEVICE_KINDS.get(ggml_kind) == "gpu" and sys.platform == "darwin" and platform.machine() == "arm64":
        return "igpu"
    return _DEVICE_KINDS.get(ggml_kind, "other")


def devices() -> tuple[DeviceInfo, ...]:
    """The devices of ggml, with their current memory."""
    return tuple(_device_info(pointer) for pointer in _device_pointers())


def device_pointer(name: str) -> int | None:
    """`ggml_backend_dev_t` of the device with this name (case-insensitive), for llama_model_params.devices."""
    for pointer in _device_pointers():
        if _device_info(pointer).name.lower() == name.lower():
            return pointer
    return None


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
