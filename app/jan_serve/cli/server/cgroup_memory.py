"""Memory that the Linux control groups of this process still allow, for containers and services.

The available memory of the system ignores these limits, and the kernel kills a process that exceeds them. Sources:
admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of the kernel documentation.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

_UNLIMITED: Final = 1 << 60
"""Version 1 writes a number near 2^63 for no limit."""


class _Names(msgspec.Struct, frozen=True):
    """Files of one cgroup version. cache: keys of memory.stat for file pages, which the kernel can reclaim."""

    limit: str
    used: str
    cache: tuple[str, ...]


_V2: Final = _Names("memory.max", "memory.current", ("active_file", "inactive_file"))
_V1: Final = _Names(
    "memory.limit_in_bytes", "memory.usage_in_bytes", ("total_active_file", "total_inactive_file")
)


def cgroup_memory_left(proc: Path = Path("/proc"), mounts: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes left within the limits, with file pages counted as free; None without a limit.

    Reads a few small files. Ignores those that it cannot read.
    """
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
    try:
        limit = (group / names.limit).read_text().strip()
        if not limit.isdecimal() or int(limit) >= _UNLIMITED:
            return None
        used = int((group / names.used).read_text())
        stat = dict(line.split(maxsplit=1) for line in (group / "memory.stat").read_text().splitlines())
        cache = sum(int(stat.get(key, 0)) for key in names.cache)
    except (OSError, ValueError):
        return None
    return max(0, int(limit) - max(0, used - cache))
