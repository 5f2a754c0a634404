"""How messages about settings say what pydantic found."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
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


def near_key(name: str, known: Iterable[str]) -> str:
    """A hint at the key that was meant, if one is close."""
    close = difflib.get_close_matches(name.lower().replace("-", "_"), list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
