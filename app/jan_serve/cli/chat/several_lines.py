"""Which input is a whole message: a line, or several in triple quotes or joined by backslashes. Pure."""

from __future__ import annotations

from typing import Final

_QUOTES: Final = '"""'


def is_whole(text: str) -> bool:
    """Whether Enter sends the text; otherwise it begins a new line."""
    stripped = text.strip()
    if stripped.startswith(_QUOTES):
        return len(stripped) >= 2 * len(_QUOTES) and stripped.endswith(_QUOTES)
    # Two backslashes are one that is meant.
    return (len(text) - len(text.rstrip("\\"))) % 2 == 0


def message_of(text: str) -> str:
    """What is meant by a whole input: without the quotes, or without the backslashes at the ends of lines."""
    stripped = text.strip()
    if stripped.startswith(_QUOTES) and is_whole(text):
        return stripped[len(_QUOTES) : -len(_QUOTES)].strip("\n")
    lines = stripped.split("\n")
    return "\n".join([*(line.removesuffix("\\") for line in lines[:-1]), lines[-1]])
