"""A constraint as a grammar, before it is printed."""

from __future__ import annotations

import msgspec

from jan_serve.constraint.ast import Grammar
from jan_serve.core.uniqueness import Uniqueness


class Translated(msgspec.Struct, frozen=True):
    """uniqueness: what the texts must obey beside the grammar, where it is JSON. most: characters of raw texts that the
    grammar does not count, by their keys."""

    grammar: Grammar
    uniqueness: Uniqueness | None = None
    most: dict[str, int] = {}
