"""The key guard sets who sent the current request: what one caller leaves on the server is for no other one."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

client: Final[ContextVar[str]] = ContextVar("client", default="")
"""Opaque: the same for requests with one key, or without keys from one address (on loopback, of one program there).

A model, and the helper processes, take turns among clients.
"""


in_background: Final[ContextVar[bool]] = ContextVar("in_background", default=False)
"""Whether the current request is a line of a batch, which waits for all others."""


_SEPARATOR: Final = "/"

cache_salt: Final[ContextVar[str]] = ContextVar("cache_salt", default="")
"""Requests with different salts share no prefixes in the cache, and no stored answers."""


stop_loops: Final[ContextVar[str]] = ContextVar("stop_loops", default="")
"""What the request's header says of loops, unchecked; empty if it says nothing."""


def salt_of(key: str, caller: str) -> str:
    """key: stands for the request's key, empty if keys separate nobody. caller: whom the key's holder, a proxy, acts
    for."""
    return f"{key}{_SEPARATOR}{caller}" if caller else key


def key_of_request() -> str:
    """What stands for the key of the current request, without the callers whom its holder acts for."""
    return key_of(cache_salt.get())


def key_of(salt: str) -> str:
    """The same of a request with this salt."""
    return salt.partition(_SEPARATOR)[0]
