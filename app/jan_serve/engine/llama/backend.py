"""llama.cpp as a library: start, logging, devices, threads, build features."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import sys
import weakref
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

import psutil

from jan_serve.core.models import DeviceInfo
from jan_serve.engine.llama.bindings import bindings_version, ggml_function, lib, llama_function
from jan_serve.errors import InsufficientMemory, JanServeError, ModelFailed, SettingsError

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


_MEMORY: Final = re.compile(
    r"alloc|out of memory|insufficient memory|failed to reserve initial output|failed to create ggml context",
    re.IGNORECASE,
)
_FLASH: Final = re.compile(r"quantized V cache .*(?:requires|requested)", re.IGNORECASE)
_BLOCK: Final = re.compile(
    r"([KV]) cache type (\S+) with block size (\d+) does not divide n_embd_head_[kv]=(\d+)"
)
_MIXED: Final = re.compile(r"does not support different K .* and V .* cache types")
_FUNCTION: Final = re.compile(r"^\w+: (?:failed to initialize the context: )?")


def context_error(
    errors: Sequence[str], *, n_ctx: int, type_k: str, type_v: str, flash_attn: str
) -> JanServeError:
    """errors: the lines of the log at level error. A lack of memory is called so only if llama.cpp says it."""
    text = "\n".join(errors)
    if _FLASH.search(text):
        return SettingsError(
            f"type_v, flash_attn: values of type {type_v} require flash attention, and flash_attn is {flash_attn}"
            + ("" if flash_attn == "off" else ", which llama.cpp does not have for this model here")
            + ": use type_v = f16"
        )
    if found := _BLOCK.search(text):
        name, block, width = f"type_{found[1].lower()}", found[3], found[4]
        return SettingsError(
            f"{name}: {found[2]} has blocks of {block} elements, and this model's heads have {width}: use f16"
        )
    if _MIXED.search(text):
        return SettingsError(
            f"type_k, type_v: this model has keys and values of one type, not {type_k} and {type_v}"
        )
    what = f"llama.cpp could not create a context of {n_ctx} tokens"
    if _MEMORY.search(text):
        return InsufficientMemory(
            f"{what} (type_k {type_k}, type_v {type_v}): not enough memory", retry_after=None
        )
    reason = _FUNCTION.sub("", errors[-1]).rstrip(".") if errors else "it gives no reason"
    return ModelFailed(
        f"{what} (type_k {type_k}, type_v {type_v}, flash_attn {flash_attn}): {reason}", retry_after=None
    )


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
