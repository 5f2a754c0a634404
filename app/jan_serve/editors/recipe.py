"""A recipe: how one program is connected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec


class Change(msgspec.Struct, frozen=True):
    """merge: maps the text of the settings file to its new text. Raises ValueError for an unreadable file."""

    path: Path
    merge: Callable[[str], str]


class Recipe(msgspec.Struct, frozen=True):
    """steps: instructions for the user. change: None if the program has no settings file to edit.

    aliases: names that the model should also have on the server, because clients of the same API send them.
    has_context: the settings or steps contain the size of the model's context.
    """

    title: str
    steps: tuple[str, ...]
    change: Change | None = None
    aliases: tuple[str, ...] = ()
    has_context: bool = True
