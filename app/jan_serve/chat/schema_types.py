"""Types of tool parameters from their JSON Schema, for models that write arguments as plain text between tags.

In `<days>2</days>` only the schema tells 2 from "2". Not a validator: a value that fits no type of the schema becomes a
string.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn, cast

from jan_serve.chat.literals import literal_to_json

ALL_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})
STRING: Final = frozenset({"string"})

_PYTHON_WORDS: Final = {"True": "true", "False": "false", "None": "null"}


def property_schema(schema: object, root: object, name: str) -> object:
    """The schema of an object's property; None if the schema does not define it."""
    for part in _alternatives(schema, root):
        properties = part.get("properties")
        if isinstance(properties, dict) and name in properties:
            return cast(dict[str, object], properties)[name]
        extra = part.get("additionalProperties")
        if isinstance(extra, dict):
            return cast(object, extra)
    return None


def item_schema(schema: object, root: object) -> object:
    """The schema of an array's items; None if the schema does not define it."""
    for part in _alternatives(schema, root):
        if isinstance(part.get("items"), dict):
            return part["items"]
    return None


def types_of(schema: object, root: object) -> frozenset[str]:
    """The types a value may have; ALL_TYPES if the schema has none. root: the schema that `$ref` points into."""
    found: set[str] = set()
    for part in _alternatives(schema, root):
        found |= _own_types(part)
    return frozenset(found & ALL_TYPES) or ALL_TYPES


def value_to_json(text: str, types: frozenset[str]) -> str:
    """Convert a value that a model wrote as `text` to JSON.

    JSON or a Python literal of one of `types` stays that value; anything else becomes a string, even if `types` has
    none. A value in quotes is never read as JSON: the quotes belong to the string.
    """
    if types == STRING:
        return json.dumps(text, ensure_ascii=False)
    stripped = text.strip()
    for candidate in (stripped, _python_to_json(stripped)):
        kind = _type_of(candidate)
        if kind in (None, "string"):
            continue
        if kind in types or (kind == "integer" and "number" in types):
            return candidate
    return json.dumps(text if "string" in types else stripped, ensure_ascii=False)


def _alternatives(schema: object, root: object) -> list[Mapping[str, Any]]:
    """The schema and the members of its references and unions: mappings only, each once."""
    parts: list[Mapping[str, Any]] = []
    seen: set[int] = set()
    queue = [schema]
    while queue:
        part = queue.pop(0)
        if not isinstance(part, dict) or id(cast(object, part)) in seen:
            continue
        found = cast(dict[str, Any], part)
        seen.add(id(found))
        parts.append(found)
        reference = found.get("$ref")
        if isinstance(reference, str):
            queue.append(_resolve(reference, root))
        for keyword in ("anyOf", "oneOf", "allOf"):
            members = found.get(keyword)
            if isinstance(members, list):
                queue += cast(list[object], members)
    return parts


def _resolve(reference: str, root: object) -> object:
    """The target of a local JSON pointer (RFC 6901); None if it does not exist."""
    node = root
    if not reference.startswith("#"):
        return None
    for step in reference[1:].split("/")[1:]:
        if not isinstance(node, dict):
            return None
        node = cast(dict[str, object], node).get(step.replace("~1", "/").replace("~0", "~"))
    return node


def _own_types(part: Mapping[str, Any]) -> set[str]:
    declared = part.get("type")
    if isinstance(declared, str):
        return {declared}
    if isinstance(declared, list):
        return {kind for kind in cast(list[object], declared) if isinstance(kind, str)}
    if "const" in part:
        return {_type_name(part["const"])}
    if isinstance(part.get("enum"), list):
        return {_type_name(value) for value in part["enum"]}
    if "properties" in part:
        return {"object"}
    return {"array"} if "items" in part else set()


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _type_of(text: str) -> str | None:
    """The type of a JSON text; None for any other text."""
    try:
        return _type_name(json.loads(text, parse_constant=_refuse))
    except (ValueError, RecursionError):
        return None


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
    return _PYTHON_WORDS.get(text, text)
