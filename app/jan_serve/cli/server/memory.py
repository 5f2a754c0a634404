"""How much memory a model may use on this machine now: main memory, and what accelerators have of their own."""

from __future__ import annotations

import contextlib
import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import psutil

from jan_serve.cli.server.memory_limit import memory_left
from jan_serve.cli.server.probe import ProbeFailed, probe_engine
from jan_serve.store.memory.free_memory import FreeMemory

_BACKEND: Final = re.compile(r"(?:lib)?ggml-(?P<name>[a-z0-9]+)")
_NO_ACCELERATORS: Final = frozenset({"base", "cpu", "blas"})


def free_memory() -> FreeMemory:
    """Asks the system, and llama.cpp in a process of its own where it may have devices, which takes about a second."""
    devices: list[dict[str, Any]] = []
    if may_have_accelerators(_library_folder()):
        # Where llama.cpp does not start, `jan-serve doctor` tells; main memory is then what there is to choose by.
        with contextlib.suppress(ProbeFailed):
            devices = probe_engine().get("devices", [])
    # Integrated devices share the main memory: counting theirs would count it twice.
    own = [int(device["free_bytes"]) for device in devices if device.get("kind") == "gpu"]
    available, left = int(psutil.virtual_memory().available), memory_left()
    return FreeMemory(main=available if left is None else min(available, left), accelerators=own)


def may_have_accelerators(folder: Path | None) -> bool:
    """Whether the llama.cpp in this folder was built with a ggml backend beyond the processor's own.

    True where that cannot be told: it may be linked in.
    """
    if folder is None:
        return True
    names = [match["name"] for path in folder.iterdir() if (match := _BACKEND.match(path.name))]
    return not names or any(name not in _NO_ACCELERATORS for name in names)


@cache
def _library_folder() -> Path | None:
    """Where llama-cpp-python keeps its libraries; found without importing it."""
    spec = importlib.util.find_spec("llama_cpp")
    folders = [Path(place, "lib") for place in spec.submodule_search_locations or ()] if spec else []
    return next((folder for folder in folders if folder.is_dir()), None)
