"""Who holds a text to a grammar."""

from __future__ import annotations

from enum import Enum


class Mode(Enum):
    """ENFORCED: the engine, which compares names and items beside the grammar (`core/uniqueness.py`), and whose
    terminals know differences and intersections. IN_RULES: the same without such terminals, where they are too large,
    or for GBNF. ALONE: the grammar alone; what needs a comparison is refused.
    """

    ENFORCED = "enforced"
    IN_RULES = "in rules"
    ALONE = "alone"

    @property
    def compares(self) -> bool:
        """Whether names and items are compared beside the grammar."""
        return self is not Mode.ALONE
