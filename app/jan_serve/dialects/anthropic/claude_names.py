"""Names of Claude models, which clients send by default, as aliases of models here. Pure."""

from __future__ import annotations

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
    """As `names_for`; the default model (None) answers to names that no model has."""
    return *names_for(name), None
