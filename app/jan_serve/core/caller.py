"""The client of the current request, set by the key guard."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

client: Final[ContextVar[str]] = ContextVar("client", default="")
"""Opaque: the same for requests with one key, or without keys from one address. A model takes turns among clients."""
