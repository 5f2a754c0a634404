"""What clients made for Claude send: names of its models, and the billing line of Claude Code. Pure."""

from __future__ import annotations

import re
from typing import Final

FAMILIES: Final = ("opus", "sonnet", "haiku")
ALL: Final = "claude"
"""The alias for Claude's names without a family, or whose family is no alias."""


def names_for(name: str) -> tuple[str, ...]:
    """The names to look up in turn: the name itself, its family, then ALL."""
    lowered = name.lower()
    if ALL not in lowered and lowered not in FAMILIES:
        return (name,)
    families = (family for family in FAMILIES if family in lowered)
    return tuple(dict.fromkeys((name, *families, ALL)))


def names_or_default(name: str) -> tuple[str | None, ...]:
    """See `names_for`; the default model (None) answers to names that no model has."""
    return *names_for(name), None


_LINE: Final = re.compile(
    r"\s*x-anthropic-billing-header:(?:[ \t]+[\w-]+=[^;\s]*;?)*(?:[ \t]*\n+|[ \t]*\Z)?", re.IGNORECASE
)
"""Its fields are `name=value;`. What follows the last one on the same line is the prompt."""


def cut_billing_line(text: str) -> str:
    """The text of a system prompt without the line."""
    match = _LINE.match(text)
    return text if match is None else text[match.end() :]
