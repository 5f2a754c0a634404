"""A translation knows who holds a text to its grammar, and gives the grammar with what is compared beside it."""

from __future__ import annotations

from enum import Enum

import msgspec

from jan_serve.constraint.ast import Grammar
from jan_serve.core.constraint import Uniqueness


class Translated(msgspec.Struct, frozen=True):
    """uniqueness: what the texts must obey beside the grammar, where it is JSON. most: characters of raw texts that the
    grammar does not count, by their keys."""

    grammar: Grammar
    uniqueness: Uniqueness | None = None
    most: dict[str, int] = {}


class Mode(Enum):
    """ENFORCED: the engine, which compares names and items beside the grammar (`core/uniqueness.py`), and whose
    terminals know differences and intersections. IN_RULES: the same without such terminals, where they are too large.
    PRINTED: for GBNF, in rules without parameters, so that properties come in order. ALONE: the grammar alone; what
    needs a comparison is refused.
    """

    ENFORCED = "enforced"
    IN_RULES = "in rules"
    PRINTED = "printed"
    ALONE = "alone"

    @property
    def compares(self) -> bool:
        """Whether names and items are compared beside the grammar."""
        return self is not Mode.ALONE
