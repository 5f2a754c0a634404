"""Whose prefixes a request may share: set for each request before it is prepared, where callers are told apart."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

cache_salt: Final[ContextVar[str]] = ContextVar("cache_salt", default="")
"""Requests under different salts find nothing of each other in the prefix cache. Empty: shared with all such."""
