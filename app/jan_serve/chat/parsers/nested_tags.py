"""Parses arguments that are nested elements, `<key>value</key>`, with a prefix before every tag."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from jan_serve.chat.chat_format import ParseContext
from jan_serve.chat.json_stream import json_escaped
from jan_serve.chat.schema_types import STRING, item_schema, property_schema, types_of, value_to_json
from jan_serve.chat.text_stream import Steps, discard
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


def copy_members(context: ParseContext, prefix: str, end: str, element: Element) -> Steps[bool]:
    """Read elements up to the tag `end` as JSON arguments of the call. False if the tag does not come."""
    stream, out = context.stream, context.out
    out.arguments("{")
    first = True
    while True:
        yield from stream.skip_space()
        if (yield from stream.accept(end)):
            out.arguments("}")
            return True
        if not (yield from stream.accept(f"{prefix}<")):
            return False
        key: list[str] = []
        if (yield from stream.read_until(_GREATER, key.append)) is None:
            return False
        name = "".join(key)
        out.arguments(f'{"" if first else ", "}"{json_escaped(name)}": ')
        first = False
        value = element.child(property_schema(element.schema, element.root, name))
        if not (yield from _copy_value(context, prefix, f"{prefix}</{name}>", value)):
            return False


def _copy_value(context: ParseContext, prefix: str, end: str, element: Element) -> Steps[bool]:
    stream, out = context.stream, context.out
    if element.depth > MAX_DEPTH:
        return False
    types = types_of(element.schema, element.root)
    if types == STRING:
        out.arguments('"')
        # Not marker_set: tag names come from the answer, and would fill its cache.
        closed = yield from stream.read_until(
            MarkerSet((end,)), lambda text: out.arguments(json_escaped(text)), cut_off=discard
        )
        if closed is not None:
            out.arguments('"')
        return closed is not None
    pieces: list[str] = []
    yield from stream.read_matching(_SPACE, pieces.append)
    if (yield from stream.accept(f"{prefix}<{ITEM}>")):
        return (yield from _copy_items(context, prefix, end, element))
    if (yield from stream.accept(end)):
        out.arguments(_empty_json("".join(pieces), types))
        return True
    if (yield from stream.is_next(f"{prefix}<")):
        return (yield from copy_members(context, prefix, end, element))
    if (yield from stream.read_until(MarkerSet((end,)), pieces.append)) is None:
        return False
    out.arguments(value_to_json("".join(pieces), types))
    return True


def _copy_items(context: ParseContext, prefix: str, end: str, element: Element) -> Steps[bool]:
    """Read the items of an array, after the opening tag of the first one."""
    stream, out = context.stream, context.out
    item = element.child(item_schema(element.schema, element.root))
    out.arguments("[")
    while True:
        if not (yield from _copy_value(context, prefix, f"{prefix}</{ITEM}>", item)):
            return False
        yield from stream.skip_space()
        if (yield from stream.accept(end)):
            out.arguments("]")
            return True
        if not (yield from stream.accept(f"{prefix}<{ITEM}>")):
            return False
        out.arguments(", ")


def _empty_json(space: str, types: frozenset[str]) -> str:
    """An element that holds nothing, or only white space."""
    if "string" in types:
        return f'"{json_escaped(space)}"'
    return "[]" if "array" in types else "{}"
