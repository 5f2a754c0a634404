"""Parses arguments that are nested elements, `<key>value</key>`, with a prefix before every tag."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from jan_serve.chat.json_stream import ObjectWriter, json_escaped
from jan_serve.chat.schema_types import STRING, item_schema, property_schema, types_of, value_to_json
from jan_serve.chat.text_stream import Sink, Steps, TextStream, discard
from jan_serve.text.markers import MarkerSet, marker_set

MAX_DEPTH: Final = 64
"""Deeper nesting is malformed. Reading recurses."""

ITEM: Final = "item"

_SPACE: Final = re.compile(r"\s*")
_GREATER: Final = marker_set(">")


class Element(msgspec.Struct, frozen=True):
    """The schema of a value to read. root: the schema that `$ref` points into. depth: nesting level."""

    schema: object
    root: object
    depth: int = 0

    def child(self, schema: object) -> Element:
        return Element(schema, self.root, self.depth + 1)


def copy_members(stream: TextStream, sink: Sink, prefix: str, end: str, element: Element) -> Steps[bool]:
    """Read elements up to the tag `end`, passing them to `sink` as a JSON object. False if the tag does not come."""
    sink("{")
    members = ObjectWriter(sink)
    while True:
        yield from stream.skip_space()
        if (yield from stream.accept(end)):
            sink("}")
            return True
        if not (yield from stream.accept(f"{prefix}<")):
            return False
        key: list[str] = []
        if (yield from stream.read_until(_GREATER, key.append)) is None:
            return False
        name = "".join(key)
        value = members.begin(f'"{json_escaped(name)}"')
        value(": ")
        child = element.child(property_schema(element.schema, element.root, name))
        if not (yield from _copy_value(stream, value, prefix, f"{prefix}</{name}>", child)):
            return False


def _copy_value(stream: TextStream, sink: Sink, prefix: str, end: str, element: Element) -> Steps[bool]:
    if element.depth > MAX_DEPTH:
        return False
    types = types_of(element.schema, element.root)
    if types == STRING:
        sink('"')
        # Not marker_set: tag names come from the answer, and would fill its cache.
        closed = yield from stream.read_until(
            MarkerSet((end,)), lambda text: sink(json_escaped(text)), cut_off=discard
        )
        if closed is not None:
            sink('"')
        return closed is not None
    pieces: list[str] = []
    yield from stream.read_matching(_SPACE, pieces.append)
    if (yield from stream.accept(f"{prefix}<{ITEM}>")):
        return (yield from _copy_items(stream, sink, prefix, end, element))
    if (yield from stream.accept(end)):
        sink(_empty_json("".join(pieces), types))
        return True
    if (yield from stream.is_next(f"{prefix}<")):
        return (yield from copy_members(stream, sink, prefix, end, element))
    if (yield from stream.read_until(MarkerSet((end,)), pieces.append)) is None:
        return False
    sink(value_to_json("".join(pieces), types))
    return True


def _copy_items(stream: TextStream, sink: Sink, prefix: str, end: str, element: Element) -> Steps[bool]:
    """Read the items of an array, after the opening tag of the first one."""
    item = element.child(item_schema(element.schema, element.root))
    sink("[")
    while True:
        if not (yield from _copy_value(stream, sink, prefix, f"{prefix}</{ITEM}>", item)):
            return False
        yield from stream.skip_space()
        if (yield from stream.accept(end)):
            sink("]")
            return True
        if not (yield from stream.accept(f"{prefix}<{ITEM}>")):
            return False
        sink(", ")


def _empty_json(space: str, types: frozenset[str]) -> str:
    """An element that holds nothing, or only white space."""
    if "string" in types:
        return f'"{json_escaped(space)}"'
    return "[]" if "array" in types else "{}"
