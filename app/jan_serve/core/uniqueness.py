"""What must be unique in a text beside its grammar: the names of an object, and the items of some arrays.

A grammar cannot compare two parts of a text. It allows each such name and item in one spelling, and these values say
where there are arrays of different items, and where names or items may run out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

NOWHERE: Final = -1
"""Stands for the number of a location or set: nothing is compared there or below."""


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


class LastTexts(msgspec.Struct, frozen=True):
    """A member by its name, or an item of an array by its position, and the texts of its values."""

    place: str | int
    values: ItemTexts


class ItemTexts(msgspec.Struct, frozen=True):
    """The items of one array that may not repeat; those of a kind that has no text here may.

    strings: the characters of its strings. others: the texts of numbers, true, false and null. endless: whether every
    beginning of a scalar can be completed in endlessly many ways, so that none is ever the only one left.
    containers: whether arrays and objects may be items. Each of them may go on where it could end. last: what those end
    with that have listed names or so many items only: these go on until its value is another one.
    """

    strings: Automaton
    others: Automaton
    endless: bool
    containers: bool = False
    last: tuple[LastTexts, ...] = ()

    def compares(self, text: bytes) -> bool:
        """Whether a scalar with this text may not repeat."""
        return bool((self.strings if text[:1] == b'"' else self.others).accepting)


class Location(msgspec.Struct, frozen=True):
    """A location in a document. names: of members, with their locations; other: of all other members; items: of items.
    unique: the number of the `ItemTexts` that may not repeat, where an array is here. classes: of other members' names,
    with their locations; each name is in one of them at most. unlisted: the number of the names that a schema does not
    list, where an object is here and they may run out."""

    names: dict[str, int]
    other: int
    items: int
    unique: int
    classes: tuple[tuple[Automaton, int], ...] = ()
    unlisted: int = NOWHERE

    def member(self, name: str) -> int:
        """The location of a member."""
        known = self.names.get(name)
        if known is not None:
            return known
        return next((location for names, location in self.classes if names.matches(name)), self.other)


ELSEWHERE: Final = Location({}, NOWHERE, NOWHERE, NOWHERE)


class CallLocations(msgspec.Struct, frozen=True):
    """Where a text of tool calls has JSON: at a brace after `before`, the name of a tool and `between`.

    before, between: regular expressions. begun: text before the answer that may belong to `before`. roots: the location
    of the arguments of each tool.
    """

    before: str
    between: str
    begun: str = ""
    roots: dict[str, int] = {}


class Uniqueness(msgspec.Struct, frozen=True):
    """The whole document is at location 0, unless it is a text of `calls`. No object, wherever it is, has a name twice.

    unlisted: sets of names. names_repeat: whether the grammar alone would let an object have a name twice.
    """

    locations: tuple[Location, ...] = (ELSEWHERE,)
    unique: tuple[ItemTexts, ...] = ()
    unlisted: tuple[Automaton, ...] = ()
    names_repeat: bool = True
    calls: CallLocations | None = None


def joined_uniqueness(parts: Mapping[str, Uniqueness], calls: CallLocations) -> Uniqueness:
    """The uniqueness of calls of tools. parts: of the arguments of each."""
    locations: list[Location] = []
    unique: list[ItemTexts] = []
    unlisted: list[Automaton] = []
    roots: dict[str, int] = {}
    for name, own in parts.items():
        compares = own.unique or own.unlisted
        roots[name] = len(locations) if compares else NOWHERE
        if compares:
            moved = (
                _moved(location, len(locations), len(unique), len(unlisted)) for location in own.locations
            )
            locations = [*locations, *moved]
            unique += own.unique
            unlisted += own.unlisted
    return Uniqueness(
        tuple(locations),
        tuple(unique),
        tuple(unlisted),
        any(own.names_repeat for own in parts.values()),
        msgspec.structs.replace(calls, roots=roots),
    )


def _moved(location: Location, locations: int, unique: int, unlisted: int) -> Location:
    """A location with all its numbers larger by these."""

    def more(number: int, by: int) -> int:
        return NOWHERE if number == NOWHERE else number + by

    return Location(
        {name: more(target, locations) for name, target in location.names.items()},
        more(location.other, locations),
        more(location.items, locations),
        more(location.unique, unique),
        tuple((names, more(target, locations)) for names, target in location.classes),
        more(location.unlisted, unlisted),
    )
