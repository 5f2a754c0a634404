"""Free memory for models: main memory and dedicated memory of accelerators."""

from __future__ import annotations

import contextlib
import importlib.util
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
import psutil

from jan_serve.cli.server.cgroup_memory import cgroup_memory_left
from jan_serve.cli.server.probe import ProbeFailed, probe_engine
from jan_serve.core.models.model_facts import DeviceInfo
from jan_serve.resources import bundled_packages
from jan_serve.store.memory.free_memory import FreeMemory

_BACKEND: Final = re.compile(r"(?:lib)?ggml-(?P<name>[a-z0-9]+)")
_NO_ACCELERATORS: Final = frozenset({"base", "cpu", "blas", "rpc"})


def free_memory(peers: Sequence[str] = ()) -> FreeMemory:
    """Blocks for about a second if llama.cpp may have devices: asks it in a separate process.

    peers: HOST:PORT of machines that lend devices.
    """
    # Integrated devices share the main memory, which must not count twice.
    dedicated = [device.free_bytes for device in accelerators(peers) if device.kind in ("gpu", "rpc")]
    return FreeMemory(main=free_main_memory(), accelerators=dedicated)


def free_main_memory() -> int:
    """Bytes that the system and the control groups of this process still have."""
    available, left = int(psutil.virtual_memory().available), cgroup_memory_left()
    return available if left is None else min(available, left)


def accelerators(peers: Sequence[str] = ()) -> list[DeviceInfo]:
    """The devices beside the CPU. Blocks for about a second if llama.cpp may have some."""
    if is_cpu_only() and not peers:
        return []
    # If llama.cpp does not start, only the main memory counts; `jan-serve doctor` reports the failure.
    with contextlib.suppress(ProbeFailed):
        found = msgspec.convert(probe_engine(peers=peers).get("accelerators", []), list[DeviceInfo])
        return found
    return []


def is_cpu_only() -> bool:
    """Whether llama.cpp is built for the CPU alone. Reads the names of its libraries."""
    return not may_have_accelerators(library_folder())


def may_have_accelerators(folder: Path | None) -> bool:
    """Whether the libraries in this folder include a ggml backend other than the CPU.

    True if unknown: the backend may be linked statically.
    """
    if folder is None:
        return True
    names = [match["name"] for path in folder.iterdir() if (match := _BACKEND.match(path.name))]
    return not names or any(name not in _NO_ACCELERATORS for name in names)


@cache
def library_folder() -> Path | None:
    """The libraries of llama-cpp-python, found without importing it."""
    if (bundled := bundled_packages()) is not None:
        return bundled / "llama_cpp" / "lib"
    spec = importlib.util.find_spec("llama_cpp")
    folders = [Path(folder, "lib") for folder in spec.submodule_search_locations or ()] if spec else []
    return next((folder for folder in folders if folder.is_dir()), None)
