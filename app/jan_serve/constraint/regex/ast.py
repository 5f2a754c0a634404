"""The regular-expression AST. It holds a pattern's syntax; `language` gives its meaning (search, anchors)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from jan_serve.constraint.automata.dfa import Dfa
from jan_serve.constraint.charset import ANY, CharSet


class Chars(msgspec.Struct, frozen=True):
    """One character of a set."""

    chars: CharSet


class Concat(msgspec.Struct, frozen=True):
    """All items in order; without items, the empty string."""

    items: tuple[Regex, ...]


class Alternation(msgspec.Struct, frozen=True):
    items: tuple[Regex, ...]


class Loop(msgspec.Struct, frozen=True):
    """`item` between `low` and `high` times; `high` None means no bound. Greediness does not change a language."""

    item: Regex
    low: int
    high: int | None


class Assertion(msgspec.Struct, frozen=True):
    """A condition on the place between two characters: `^`, `$`, `b` or `B`."""

    kind: str


class Look(msgspec.Struct, frozen=True):
    """A lookahead: the rest of the string starts (or, negated, does not start) with `item`."""

    item: Regex
    negated: bool
    position: int


class Automaton(msgspec.Struct, frozen=True, eq=False):
    """Any word of a DFA."""

    dfa: Dfa


Regex: TypeAlias = Chars | Concat | Alternation | Loop | Assertion | Look | Automaton

EPSILON = Concat(())
ANYTHING = Loop(Chars(ANY), 0, None)


def concat(items: list[Regex]) -> Regex:
    """Concatenation with nested ones opened."""
    flat: list[Regex] = []
    for item in items:
        if type(item) is Concat:
            flat += item.items
        else:
            flat.append(item)
    return flat[0] if len(flat) == 1 else Concat(tuple(flat))


def alternation(items: list[Regex]) -> Regex:
    """Alternation with duplicates dropped, and single characters merged into one set."""
    flat = list(dict.fromkeys(items))
    return flat[0] if len(flat) == 1 else Alternation(tuple(flat))


def parts(regex: Regex) -> Iterator[Regex]:
    """The expression and all that it holds."""
    todo = [regex]
    while todo:
        item = todo.pop()
        yield item
        if isinstance(item, Concat | Alternation):
            todo += item.items
        elif isinstance(item, Loop | Look):
            todo.append(item.item)
