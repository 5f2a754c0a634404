"""Writes the members of JSON objects for notations in which a model may write a name again."""

from __future__ import annotations

from jan_serve.chat.json_stream import json_string_value
from jan_serve.chat.text_stream import Sink, discard


class ObjectWriter:
    """The members of one object, without its braces. Spacing is that of Python's json.

    A name is written once, with its first value: members stream, so a client may have that one already.
    """

    __slots__ = ("_names", "_sink")

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._names: set[str | None] = set()

    def begin(self, key: str) -> Sink:
        """Begin a member with its key, a JSON string. Returns the sink of its colon and value, which drops those of a
        repeated name."""
        name = json_string_value(key)
        if name in self._names:
            return discard
        self._sink(f", {key}" if self._names else key)
        self._names.add(name)
        return self._sink
