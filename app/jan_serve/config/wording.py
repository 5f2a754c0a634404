"""How messages about settings say what pydantic found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_LONGEST = 80


def sentence(message: str) -> str:
    """Pydantic's "Input should be …" as the rest of a sentence about the field."""
    message = message.removeprefix("Value error, ")
    for said, meant in (("Input should be", "must be"), ("String should", "must"), ("Tuple should", "must")):
        message = message.replace(said, meant)
    return message.replace("a valid tuple", "a list")


def brief(value: Any) -> str:
    """A value for a message, cut where it is long."""
    text = repr(str(value) if isinstance(value, Path) else value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
