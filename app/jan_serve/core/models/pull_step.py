"""Progress of a download from the hub."""

from __future__ import annotations

import msgspec


class PulledFile(msgspec.Struct, frozen=True):
    """sha256: as the hub lists it."""

    path: str
    size_bytes: int
    sha256: str


class PullStep(msgspec.Struct, frozen=True):
    """files: of the model, in order of transfer. received: bytes of all of them. note: for people, if any.

    done: all files are verified and the model can be used. name: of the model, canonical.
    """

    name: str
    files: tuple[PulledFile, ...]
    received: int
    note: str | None = None
    done: bool = False
