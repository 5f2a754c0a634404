"""What an executor remembers beside a grammar: the names of objects, the items of arrays that must differ, and how a
string ends.

A grammar cannot compare two parts of a text. It allows each such name and item in one spelling, and these values say
where there are arrays of different items, and where names or items may run out.
"""

from __future__ import annotations

from collections.abc import Mapping
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


class CallPlaces(msgspec.Struct, frozen=True):
    """Where a text of tool calls has JSON: at a brace after `before`, the name of a tool and `between`.

    before, between: regular expressions. begun: text before the answer that may belong to `before`. roots: the place of
    the arguments of each tool.
    """

    before: str
    between: str
    begun: str = ""
    roots: dict[str, int] = {}


class TextMemory(msgspec.Struct, frozen=True):
    """The whole document is at place 0, unless it is a text of `calls`. No object, wherever it is, has a name twice.

    unlisted: sets of names. names_repeat: whether the grammar alone would let an object have a name twice.
    """

    places: tuple[Place, ...] = (ELSEWHERE,)
    unique: tuple[ItemTexts, ...] = ()
    unlisted: tuple[Automaton, ...] = ()
    names_repeat: bool = True
    calls: CallPlaces | None = None


def joined_memory(memories: Mapping[str, TextMemory], calls: CallPlaces) -> TextMemory:
    """The memory of calls of tools, each of which has one for its arguments."""
    places: list[Place] = []
    unique: list[ItemTexts] = []
    unlisted: list[Automaton] = []
    roots: dict[str, int] = {}
    for name, memory in memories.items():
        remembers = memory.unique or memory.unlisted
        roots[name] = len(places) if remembers else NOWHERE
        if remembers:
            moved = (_moved(place, len(places), len(unique), len(unlisted)) for place in memory.places)
            places = [*places, *moved]
            unique += memory.unique
            unlisted += memory.unlisted
    return TextMemory(
        tuple(places),
        tuple(unique),
        tuple(unlisted),
        any(memory.names_repeat for memory in memories.values()),
        msgspec.structs.replace(calls, roots=roots),
    )


def _moved(place: Place, places: int, unique: int, unlisted: int) -> Place:
    """A place with all its numbers larger by these."""

    def more(number: int, by: int) -> int:
        return NOWHERE if number == NOWHERE else number + by

    return Place(
        {name: more(target, places) for name, target in place.names.items()},
        more(place.other, places),
        more(place.items, places),
        more(place.unique, unique),
        tuple((names, more(target, places)) for names, target in place.classes),
        more(place.unlisted, unlisted),
    )
