"""Versions of files on disk, and their upgrade. Pure: the caller reads and writes.

Starting a newer jan-serve rewrites no file: older content is upgraded in memory at each read. An interrupted or
reverted upgrade therefore leaves all files unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

Steps = Mapping[int, Callable[[MutableMapping[str, Any]], None]]
"""By the version that a step upgrades, from 1 without gaps. A step changes the content in place."""


class LaterVersion(Exception):
    """A later jan-serve wrote the content."""

    def __init__(self, version: int, known: int) -> None:
        super().__init__(f"version {version}; this jan-serve knows versions up to {known}")
        self.version = version
        self.known = known


def latest(steps: Steps) -> int:
    """The version after all steps."""
    return len(steps) + 1


def upgrade(content: MutableMapping[str, Any], key: str, steps: Steps) -> int:
    """Upgrade `content` to the latest version in place; returns its previous version.

    key: of the version; missing means 1, and is not added while the latest version is 1. Raises LaterVersion, and
    ValueError for an invalid version, before any change.
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
