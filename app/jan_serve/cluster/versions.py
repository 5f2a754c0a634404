"""All machines of a Ray cluster need the same Python, Ray and jan-serve."""

from __future__ import annotations

import platform
from collections.abc import Iterable

import msgspec

from jan_serve import __version__


class Versions(msgspec.Struct, frozen=True):
    """Ray compares Python's patch release too: it exchanges pickles."""

    python: str
    ray: str
    jan_serve: str

    def __str__(self) -> str:
        return f"Python {self.python}, Ray {self.ray}, jan-serve {self.jan_serve}"


def versions_here(ray: str) -> Versions:
    return Versions(platform.python_version(), ray, __version__)


def differences(here: Versions, others: Iterable[tuple[str, Versions]]) -> list[str]:
    """A sentence for each machine that has something else. others: with the machines' addresses."""
    return [f"{address} has {found}; this machine has {here}" for address, found in others if found != here]
