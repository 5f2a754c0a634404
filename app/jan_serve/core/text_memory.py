"""What an executor remembers beside a grammar: the names of objects, the items of arrays that must differ, and how a
string ends.

A grammar cannot compare two parts of a text. It allows each such name and item in one spelling, and these values say
where there are arrays of different items, and where names or items may run out.
"""

from __future__ import annotations

from typing import Final

import msgspec

NOWHERE: Final = -1
"""In place of a number of a place or set: nothing is remembered there or below."""


class Automaton(msgspec.Struct, frozen=True):
    """A deterministic automaton without dead ends; state 0 is the start.

    edges: per state, (first code point, last code point, next state), in order and disjoint.
    """

    edges: tuple[tuple[tuple[int, int, int], ...], ...]
    accepting: frozenset[int]

    def step(self, state: int, character: str) -> int | None:
        code = ord(character)
        for first, last, target in self.edges[state]:
            if first <= code <= last:
                return target
        return None

    def matches(self, text: str) -> bool:
        """Whether the whole of `text` is a word."""
        state: int | None = 0
        for character in text:
            state = self.step(state, character)
            if state is None:
                return False
        return state in self.accepting


class ItemTexts(msgspec.Struct, frozen=True):
    """The items of one array.

    strings: the characters of its strings. others: the texts of numbers, true, false and null. endless: whether every
    beginning of a scalar can be completed in endlessly many ways, so that none is ever the only one left.
    containers: whether arrays and objects may be items. Each of them may go on where it could end.
    """

    strings: Automaton
    others: Automaton
    endless: bool
    containers: bool = False


class Place(msgspec.Struct, frozen=True):
    """A place in a document. names: of members, with their places; other: of all other members. items: the place of
    items. unique: the number of the `ItemTexts` that may not repeat, where an array is here. classes: of other members'
    names, with their places; each name is in one of them at most. unlisted: the number of the names that a schema does
    not list, where an object is here and they may run out."""

    names: dict[str, int]
    other: int
    items: int
    unique: int
    classes: tuple[tuple[Automaton, int], ...] = ()
    unlisted: int = NOWHERE

    def member(self, name: str) -> int:
        """The place of a member."""
        known = self.names.get(name)
        if known is not None:
            return known
        return next((place for names, place in self.classes if names.matches(name)), self.other)


ELSEWHERE: Final = Place({}, NOWHERE, NOWHERE, NOWHERE)


class TextMemory(msgspec.Struct, frozen=True):
    """The whole document is at place 0. No object, wherever it is, has a name twice. unlisted: sets of names.

    names_repeat: whether the grammar alone would let an object have a name twice.
    """

    places: tuple[Place, ...] = (ELSEWHERE,)
    unique: tuple[ItemTexts, ...] = ()
    unlisted: tuple[Automaton, ...] = ()
    names_repeat: bool = True
