"""The memory that a container or a service may still take, where the system limits it: Linux control groups.

The system's own figure of available memory does not know of these limits; what goes beyond them is killed. Source: the
kernel's documents admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

_UNLIMITED: Final = 1 << 60
"""Version 1 says "no limit" by a number near 2^63."""


@dataclass(frozen=True, slots=True)
class _Names:
    """The files of one version. cache: keys of memory.stat for pages of files, which can be dropped."""

    limit: str
    used: str
    cache: tuple[str, ...]


_V2: Final = _Names("memory.max", "memory.current", ("active_file", "inactive_file"))
_V1: Final = _Names(
    "memory.limit_in_bytes", "memory.usage_in_bytes", ("total_active_file", "total_inactive_file")
)


def memory_left(proc: Path = Path("/proc"), mounts: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes that this process's control groups leave, pages of files not counted as taken. None: no limit is known.

    Reads some small files; what cannot be read limits nothing.
    """
    left = [amount for group, names in _groups(proc, mounts) if (amount := _left(group, names)) is not None]
    return min(left, default=None)


def _groups(proc: Path, mounts: Path) -> Iterator[tuple[Path, _Names]]:
    """The folders of our groups and of those above them, whose limits hold too."""
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
        if ".." in inside.parts:  # a group outside of our namespace
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
