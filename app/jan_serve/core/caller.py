"""The client of the current request, set by the key guard."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

client: Final[ContextVar[str]] = ContextVar("client", default="")
"""Opaque: the same for requests with one key, or without keys from one address (on loopback, of one program there).

A model, and the helper processes, take turns among clients.
"""
