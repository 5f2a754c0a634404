"""The result of a row."""

from __future__ import annotations

Figures = dict[str, float]

CONTEXTS = (1, 4, 8, 16)
"""Context lengths of the curves' points, in thousands of tokens."""
STREAMS = (1, 2, 4, 8, 16, 32)
"""Numbers of streams of the curves' points."""


class Skipped(Exception):
    """A row that this server cannot run, with the reason."""
