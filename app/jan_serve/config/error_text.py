"""Wording of messages about settings."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_MAX_LENGTH = 80


def sentence(message: str) -> str:
    """Pydantic's "Input should be …" as the predicate of a sentence about the field."""
    message = message.removeprefix("Value error, ")
    for original, replacement in (
        ("Input should be", "must be"),
        ("String should", "must"),
        ("Tuple should", "must"),
    ):
        message = message.replace(original, replacement)
    return message.replace("a valid tuple", "a list")


def brief(value: Any) -> str:
    """A value for a message, truncated."""
    text = repr(str(value) if isinstance(value, Path) else value)
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 3] + "..."


def near_key(name: str, known: Iterable[str]) -> str:
    """A hint at a similar known key; empty if there is none."""
    close = difflib.get_close_matches(name.lower().replace("-", "_"), list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
