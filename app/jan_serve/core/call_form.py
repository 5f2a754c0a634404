"""The name of a chat format, and the form in which one template writes the format's calls."""

from __future__ import annotations

import msgspec


class CallForm(msgspec.Struct, frozen=True, kw_only=True):
    """What a template's calls have of its own.

    layout: number among the layouts of the format. texts: the texts of the layout in order; empty for its own.
    python_words: values that are not within others are True, False and None.
    """

    layout: int = 0
    texts: tuple[str, ...] = ()
    python_words: bool = False


class FormatName(msgspec.Struct, frozen=True):
    """A chat format by its name. form: None for its own form of calls."""

    name: str
    form: CallForm | None = None
