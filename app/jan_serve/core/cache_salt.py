"""Who sent the current request, set by the key guard: what one caller leaves on the server is for no other one."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

_SEPARATOR: Final = "/"

cache_salt: Final[ContextVar[str]] = ContextVar("cache_salt", default="")
"""Requests with different salts share no prefixes in the cache, and no stored answers."""


def salt_of(key: str, caller: str) -> str:
    """key: stands for the request's key, empty if keys separate nobody. caller: whom the key's holder, a proxy, acts
    for."""
    return f"{key}{_SEPARATOR}{caller}" if caller else key


def key_of_request() -> str:
    """What stands for the key of the current request, without the callers whom its holder acts for."""
    return cache_salt.get().partition(_SEPARATOR)[0]
