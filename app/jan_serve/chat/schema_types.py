"""Types of tool parameters from their JSON Schema: in `<days>2</days>` only the schema tells 2 from "2". Not a
validator: a value that fits no type of the schema becomes a string."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn, cast

from jan_serve.chat.literals import JSON, literal_to_json

ALL_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})
STRING: Final = frozenset({"string"})
MAX_DEPTH: Final = 64
"""References, alternatives and parts of a schema within each other; those further in count as none."""


def property_schema(schema: object, root: object, name: str) -> object:
    """What applies to an object's property in the schema and its alternatives; None if none of them defines it."""

    def own(part: Mapping[str, Any]) -> object:
        properties, extra = part.get("properties"), part.get("additionalProperties")
        if isinstance(properties, dict) and name in properties:
            return cast(dict[str, object], properties)[name]
        return cast(object, extra) if isinstance(extra, dict) else None

    return _member(schema, root, own, set(), 0)


def item_schema(schema: object, root: object) -> object:
    """What applies to an array's items, as of `property_schema`."""

    def own(part: Mapping[str, Any]) -> object:
        return part["items"] if isinstance(part.get("items"), dict) else None

    return _member(schema, root, own, set(), 0)


def types_of(schema: object, root: object) -> frozenset[str]:
    """The types a value may have; ALL_TYPES if the schema has none. root: the schema that `$ref` points into."""
    return _types(schema, root, {}, 0) or _hinted(schema) or ALL_TYPES


def value_to_json(text: str, types: frozenset[str]) -> str:
    """Convert a value that a model wrote as `text` to JSON.

    JSON or a Python literal of one of `types` stays that value; anything else becomes a string, even if `types` has
    none. A value in quotes is never read as JSON: the quotes belong to the string. An object that repeats a name keeps
    its first value.
    """
    if types == STRING:
        return json.dumps(text, ensure_ascii=False)
    stripped = text.strip()
    for candidate in (stripped, _python_to_json(stripped)):
        kind, repeats = _type_of(candidate)
        if kind in (None, "string"):
            continue
        if kind in types or (kind == "integer" and "number" in types):
            return literal_to_json(candidate, JSON) or candidate if repeats else candidate
    return json.dumps(text if "string" in types else stripped, ensure_ascii=False)


def _member(
    schema: object, root: object, own: Callable[[Mapping[str, Any]], object], seen: set[int], depth: int
) -> object:
    """own: what a schema itself defines. seen: the schemas so far, of which each counts once."""
    if not isinstance(schema, dict) or id(cast(object, schema)) in seen or depth > MAX_DEPTH:
        return None
    part = cast(dict[str, Any], schema)
    seen.add(id(part))

    def those_of(members: Sequence[object]) -> list[object]:
        found = (_member(member, root, own, seen, depth + 1) for member in members)
        return [schema for schema in found if schema is not None]

    found = [each for each in (own(part), *those_of(_conjuncts(part, root))) if each is not None]
    found += [{"anyOf": each} for members in _unions(part) if (each := those_of(members))]
    return {"allOf": found} if len(found) > 1 else next(iter(found), None)


def _types(
    schema: object, root: object, known: dict[int, frozenset[str] | None], depth: int
) -> frozenset[str] | None:
    """None: any. known: of the schemas so far; any for those that refer to themselves."""
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return None
    part = cast(dict[str, Any], schema)
    if id(part) in known:
        return known[id(part)]
    known[id(part)] = None
    found = _own_types(part)
    for member in _conjuncts(part, root):
        found = _both(found, _types(member, root, known, depth + 1))
    for members in _unions(part):
        each = [_types(member, root, known, depth + 1) or _hinted(member) for member in members]
        either = frozenset[str]().union(*(types for types in each if types is not None))
        found = _both(found, None if None in each else either)
    known[id(part)] = found
    return found


def _both(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    """The types that both sets have: an integer is a number."""
    if one is None or other is None:
        return other if one is None else one

    def is_in(kind: str, types: frozenset[str]) -> bool:
        return kind in types or (kind == "integer" and "number" in types)

    return frozenset(kind for kind in one | other if is_in(kind, one) and is_in(kind, other))


def _conjuncts(part: Mapping[str, Any], root: object) -> list[object]:
    """The schemas that apply together with this one."""
    reference, members = part.get("$ref"), part.get("allOf")
    target = [_resolve(reference, root)] if isinstance(reference, str) else []
    return [*target, *(cast(list[object], members) if isinstance(members, list) else [])]


def _unions(part: Mapping[str, Any]) -> list[list[object]]:
    """The lists of schemas of which one or more apply together with this one."""
    lists = (part.get(keyword) for keyword in ("anyOf", "oneOf"))
    return [cast(list[object], members) for members in lists if isinstance(members, list) and members]


def _resolve(reference: str, root: object) -> object:
    """The target of a local JSON pointer (RFC 6901); None if it does not exist."""
    node = root
    if reference != "#" and not reference.startswith("#/"):
        return None
    for step in reference[1:].split("/")[1:]:
        if not isinstance(node, dict):
            return None
        node = cast(dict[str, object], node).get(step.replace("~1", "/").replace("~0", "~"))
    return node


def _own_types(part: Mapping[str, Any]) -> frozenset[str] | None:
    """Those that a schema declares or lists itself; None for any."""
    declared = part.get("type")
    named = cast(list[object], declared) if isinstance(declared, list) else [declared]
    kinds = (kind.lower() if kind.isupper() else kind for kind in named if isinstance(kind, str))
    found = ALL_TYPES.intersection(kinds) or None
    listed = [part["const"]] if "const" in part else part.get("enum")
    if isinstance(listed, list):
        found = _both(found, frozenset(map(_type_name, cast(list[object], listed))))
    return found


def _hinted(schema: object) -> frozenset[str] | None:
    """The type that the keywords of a schema are about."""
    if not isinstance(schema, dict):
        return None
    if "properties" in schema:
        return frozenset({"object"})
    return frozenset({"array"}) if "items" in schema else None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _type_of(text: str) -> tuple[str | None, bool]:
    """The type of a JSON text, None for any other text; and whether an object in it repeats a name."""
    repeats = False

    def members(pairs: list[tuple[str, object]]) -> dict[str, object]:
        nonlocal repeats
        named = dict(pairs)
        repeats = repeats or len(named) < len(pairs)
        return named

    try:
        value = json.loads(text, parse_constant=_refuse, object_pairs_hook=members)
    except (ValueError, RecursionError):
        return None, False
    return _type_name(value), repeats


def _type_name(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case dict():
            return "object"
        case _:
            return "array"


def _python_to_json(text: str) -> str:
    if text[:1] in ("{", "[", "("):
        return literal_to_json(text) or text
    return {"True": "true", "False": "false", "None": "null"}.get(text, text)
