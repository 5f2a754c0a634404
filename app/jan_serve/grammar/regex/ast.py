"""The regular-expression AST. It holds a pattern's syntax; `language` gives its meaning (search, anchors)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from jan_serve.grammar.automata.dfa import Dfa
from jan_serve.grammar.charset import ANY, CharSet


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set."""

    chars: CharSet


@dataclass(frozen=True, slots=True)
class Concat:
    """All items in order; without items, the empty string."""

    items: tuple[Regex, ...]


@dataclass(frozen=True, slots=True)
class Alternation:
    items: tuple[Regex, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """`item` between `low` and `high` times; `high` None means no bound. Greediness does not change a language."""

    item: Regex
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Assertion:
    """A condition on the place between two characters: `^`, `$`, `b` or `B`."""

    kind: str


@dataclass(frozen=True, slots=True)
class Look:
    """A lookahead: the rest of the string starts (or, negated, does not start) with `item`."""

    item: Regex
    negated: bool
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class Automaton:
    """Any word of a DFA; a lookahead and all that follows it are reduced to one."""

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
