"""What a row gives."""

from __future__ import annotations

Figures = dict[str, float]

CONTEXTS = (1, 4, 8, 16)
"""Lengths of the context that the curves have points at, in thousands of tokens."""
STREAMS = (1, 2, 4, 8, 16, 32)
"""Numbers of streams that they have points at."""


class Skipped(Exception):
    """A row that this server cannot be asked, with the reason."""
