"""The prefix-cache salt of the current request, set by the key guard if keys separate callers."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

cache_salt: Final[ContextVar[str]] = ContextVar("cache_salt", default="")
"""Requests with different salts share no prefixes in the cache."""
