"""Measures what this machine has for models: the version and devices of llama.cpp, and free memory.
Commands never load llama.cpp themselves: a build that crashes on this machine crashes only the worker process that is
asked. The available memory of the system ignores the limits of Linux control groups, and the kernel kills a process
that exceeds them. Sources: admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of the kernel documentation."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec
import psutil

from jan_serve.core.models import DeviceInfo
from jan_serve.resources import bundled_packages
from jan_serve.store.model_memory import FreeMemory
from jan_serve.supervisor.workers.child_process import child_environment, own_command

_PROBE_COMMAND: Final = (*own_command("worker"), "--probe")
_PROBE_TIMEOUT_S: Final = 60.0


class ProbeFailed(Exception):
    """The message gives the reason."""


def probe_engine(
    command: Sequence[str] = _PROBE_COMMAND, timeout_s: float = _PROBE_TIMEOUT_S, peers: Sequence[str] = ()
) -> dict[str, Any]:
    """Version, features and devices of llama.cpp, with those of peers. Blocks for about a second. Raises ProbeFailed.
    peers: HOST:PORT of machines that lend devices."""
    try:
        done = subprocess.run(
            [*command, *peers],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            env=child_environment(os.environ),
        )
    except subprocess.TimeoutExpired:
        raise ProbeFailed(f"llama.cpp did not answer within {timeout_s:g} s") from None
    except OSError as error:
        raise ProbeFailed(f"cannot start a worker process: {error.strerror}") from None
    last_line = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
    if done.returncode != 0:
        ending = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
        raise ProbeFailed(f"llama.cpp does not start ({ending}): {''.join(last_line) or 'no message'}")
    for line in reversed(done.stdout.splitlines()):
        try:
            return msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError:
            continue  # native code may print other lines
    raise ProbeFailed("the worker printed nothing about llama.cpp")


_UNLIMITED: Final = 1 << 60
"""Version 1 writes a number near 2^63 for no limit."""


_Names = tuple[str, str, tuple[str, ...]]
"""Files of one cgroup version: of the limit and of what is used, and keys of memory.stat for file pages, which the
kernel can reclaim."""

_V2: Final[_Names] = ("memory.max", "memory.current", ("active_file", "inactive_file"))
_V1: Final[_Names] = (
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_active_file", "total_inactive_file"),
)


def cgroup_memory_left(proc: Path = Path("/proc"), mounts: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes left within the limits, with file pages counted as free; None without a limit.
    Reads a few small files. Ignores those that it cannot read."""
    left = [n_bytes for group, names in _groups(proc, mounts) if (n_bytes := _left(group, names)) is not None]
    return min(left, default=None)


def _groups(proc: Path, mounts: Path) -> Iterator[tuple[Path, _Names]]:
    """The folders of the groups of this process and of their parents, whose limits apply too."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            root, names = mounts, _V2
        elif "memory" in controllers.split(","):
            root, names = mounts / "memory", _V1
        else:
            continue
        inside = PurePosixPath(path.lstrip("/"))
        if ".." in inside.parts:  # a group outside the namespace
            inside = PurePosixPath()
        for part in (inside, *inside.parents):
            yield root / part, names


def _left(group: Path, names: _Names) -> int | None:
    limit_name, used_name, cached = names
    try:
        limit = (group / limit_name).read_text().strip()
        if not limit.isdecimal() or int(limit) >= _UNLIMITED:
            return None
        used = int((group / used_name).read_text())
        stat = dict(line.split(maxsplit=1) for line in (group / "memory.stat").read_text().splitlines())
        cache = sum(int(stat.get(key, 0)) for key in cached)
    except (OSError, ValueError):
        return None
    return max(0, int(limit) - max(0, used - cache))


_BACKEND: Final = re.compile(r"(?:lib)?ggml-(?P<name>[a-z0-9]+)")
_NO_ACCELERATORS: Final = frozenset({"base", "cpu", "blas", "rpc"})


def free_memory(peers: Sequence[str] = ()) -> FreeMemory:
    """Blocks for about a second if llama.cpp may have devices: asks it in a separate process.
    peers: HOST:PORT of machines that lend devices."""
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
    True if unknown: the backend may be linked statically."""
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
