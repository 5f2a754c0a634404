"""Lengths of texts in calls, which an executor counts beside a grammar: an automaton would have a state for each.

The grammar allows such a text without a bound, up to its stop. These values say where it begins, and how long it may
be.
"""

from __future__ import annotations

import msgspec


class CallMarks(msgspec.Struct, frozen=True):
    """Where names and values are in the calls of a format. All but `stop` and `gap` are regular expressions.

    before_name, after_name: around the name of a tool. before_key, key, after_key: what begins a value, and what the
    key of any may be. stop: what ends a value. gap: belongs to the stop where it stands before it.
    """

    before_name: str
    after_name: str
    before_key: str
    key: str
    after_key: str
    stop: str
    gap: str = ""


class TextBounds(msgspec.Struct, frozen=True):
    """most: characters of the value of a key, by the names of tools. A bound is longer than any token.

    start: a regular expression for what is before the first name, where `before_name` is not all there.
    """

    marks: CallMarks
    most: dict[str, dict[str, int]]
    start: str = ""
