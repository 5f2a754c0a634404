"""Versions of what is on disk, and the steps from each to the next. Pure: reading and writing is the caller's.

Nothing is rewritten because a newer jan-serve started: what is older is brought up in memory, each time it is read. An
upgrade that was interrupted, or taken back, therefore finds everything as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

Steps = Mapping[int, Callable[[MutableMapping[str, Any]], None]]
"""By the version that a step starts from, without gaps from 1 on. A step changes the content in place."""


class LaterVersion(Exception):
    """The content was written by a later jan-serve; what it means is not known here."""

    def __init__(self, version: int, known: int) -> None:
        super().__init__(f"version {version}, of which this jan-serve knows {known}")
        self.version = version
        self.known = known


def latest(steps: Steps) -> int:
    """The version that all steps lead to."""
    return len(steps) + 1


def upgrade(content: MutableMapping[str, Any], key: str, steps: Steps) -> int:
    """Bring `content` up to the latest version in place; the value is the version that it had.

    key: where the version stands; without it, it is 1. It is left out of the result where that is 1 too. Raises
    LaterVersion, and ValueError for a version that is no version; `content` is then as it was.
    """
    version = content.get(key, 1)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError(f"{key} must be a whole number from 1 on")
    if version > latest(steps):
        raise LaterVersion(version, latest(steps))
    for number in range(version, latest(steps)):
        steps[number](content)
        content[key] = number + 1
    return int(version)
