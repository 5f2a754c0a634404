"""What `jan-serve bench` measures of a model (values only)."""

from __future__ import annotations

import msgspec


class FirstToken(msgspec.Struct, frozen=True):
    """tokens: length of a prompt that no cache has. seconds: until the first token. per_second: tokens read."""

    tokens: int
    seconds: float
    per_second: float


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """One run. at: seconds since 1970. writes: tokens a second of all clients together, by their number.

    memory: bytes of the model's process. bandwidth: bytes a second that all cores read together. bandwidth_share: of
    it, by one client, each of whose tokens reads all weights (experts that rest are counted too). None: not known.
    """

    model: str
    version: str
    at: float
    first: tuple[FirstToken, ...]
    writes: dict[int, float]
    memory: int | None = None
    bandwidth: float | None = None
    bandwidth_share: float | None = None
    format: int = 1
