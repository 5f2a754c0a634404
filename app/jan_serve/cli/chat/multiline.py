"""Multiline input: lines within triple quotes or joined by backslashes (pure)."""

from __future__ import annotations

from typing import Final

_QUOTES: Final = '"""'


def is_complete(text: str) -> bool:
    """Whether Enter sends the text rather than start a new line."""
    stripped = text.strip()
    if stripped.startswith(_QUOTES):
        return len(stripped) >= 2 * len(_QUOTES) and stripped.endswith(_QUOTES)
    # Two backslashes at the end are an escaped one.
    return (len(text) - len(text.rstrip("\\"))) % 2 == 0


def message_of(text: str) -> str:
    """The message of a complete input, without the quotes or the backslashes at line ends."""
    stripped = text.strip()
    if stripped.startswith(_QUOTES) and is_complete(text):
        return stripped[len(_QUOTES) : -len(_QUOTES)].strip("\n")
    lines = stripped.split("\n")
    return "\n".join([*(line.removesuffix("\\") for line in lines[:-1]), lines[-1]])
