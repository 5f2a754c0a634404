"""The meta-schemas of the drafts: what a JSON Schema has to be. A `$ref` may name them, as tools that write schemas do.

They use keywords that mean the same in every draft.
"""

from __future__ import annotations

from typing import Any, Final

from jan_serve.constraint.json_schema.keywords import DRAFTS, TYPES

_TEXT: Final[dict[str, Any]] = {"type": "string"}
_PLACE: Final[dict[str, Any]] = {"type": "string", "format": "uri-reference"}
_FLAG: Final[dict[str, Any]] = {"type": "boolean"}
_NUMBER: Final[dict[str, Any]] = {"type": "number"}
_COUNT: Final[dict[str, Any]] = {"type": "integer", "minimum": 0}
_NAMES: Final[dict[str, Any]] = {"type": "array", "items": _TEXT, "uniqueItems": True}
_KINDS: Final[dict[str, Any]] = {
    "anyOf": [
        {"enum": list(TYPES)},
        {"type": "array", "items": {"enum": list(TYPES)}, "minItems": 1, "uniqueItems": True},
    ]
}
_SIMPLE: Final[dict[int, dict[str, Any]]] = {
    4: {
        **dict.fromkeys(("title", "description", "format"), _TEXT),
        **dict.fromkeys(("$ref", "$schema"), _PLACE),
        **dict.fromkeys(("minimum", "maximum"), _NUMBER),
        **dict.fromkeys(
            ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _COUNT
        ),
        "multipleOf": {"type": "number", "minimum": 0, "not": {"enum": [0]}},
        "pattern": {"type": "string", "format": "regex"},
        "uniqueItems": _FLAG,
        "required": _NAMES,
        "enum": {"type": "array"},
        "type": _KINDS,
    },
    6: {"$id": _PLACE, "examples": {"type": "array"}},
    7: {
        **dict.fromkeys(("$comment", "contentMediaType", "contentEncoding"), _TEXT),
        **dict.fromkeys(("readOnly", "writeOnly"), _FLAG),
    },
    2019: {
        **dict.fromkeys(("minContains", "maxContains"), _COUNT),
        **dict.fromkeys(("deprecated", "$recursiveAnchor"), _FLAG),
        "$anchor": _TEXT,
        "$recursiveRef": _PLACE,
        "$vocabulary": {"type": "object", "additionalProperties": _FLAG},
        "dependentRequired": {"type": "object", "additionalProperties": _NAMES},
    },
    2020: {"$dynamicRef": _PLACE, "$dynamicAnchor": _TEXT},
}
"""Keywords without subschemas, by the draft that they begin with."""
_SCHEMAS: Final[dict[int, tuple[str, ...]]] = {
    4: ("not", "additionalProperties"),
    6: ("contains", "propertyNames"),
    7: ("if", "then", "else"),
    2019: ("unevaluatedItems", "unevaluatedProperties", "contentSchema"),
}
_LISTS: Final[dict[int, tuple[str, ...]]] = {4: ("allOf", "anyOf", "oneOf"), 2020: ("prefixItems",)}
_MAPS: Final[dict[int, tuple[str, ...]]] = {
    4: ("properties", "patternProperties", "definitions"),
    2019: ("$defs", "dependentSchemas"),
}


def meta_schema(uri: str) -> dict[str, Any] | None:
    """The meta-schema with this URI, without its fragment; None for another document."""
    draft = DRAFTS.get(uri, 0)
    if draft < 4:
        return None
    schema = {"$ref": uri}
    schemas = {"type": "array", "items": schema, "minItems": 1}
    by_name = {"type": "object", "additionalProperties": schema}
    properties: dict[str, Any] = {}
    for since in sorted(_SIMPLE):
        if since <= draft:
            properties |= _SIMPLE[since]
            properties |= dict.fromkeys(_SCHEMAS.get(since, ()), schema)
            properties |= dict.fromkeys(_LISTS.get(since, ()), schemas)
            properties |= dict.fromkeys(_MAPS.get(since, ()), by_name)
    properties |= dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), _FLAG if draft == 4 else _NUMBER)
    properties["items"] = schema if draft == 2020 else {"anyOf": [schema, schemas]}
    properties["dependencies"] = {"type": "object", "additionalProperties": {"anyOf": [schema, _NAMES]}}
    if draft < 2020:
        properties["additionalItems"] = schema
    if draft > 4:
        return {"type": ["object", "boolean"], "properties": properties}
    properties["id"] = _TEXT
    properties["enum"] = {"type": "array", "minItems": 1}
    properties["required"] = {**_NAMES, "minItems": 1}
    for keyword in ("additionalProperties", "additionalItems"):
        properties[keyword] = {"anyOf": [_FLAG, schema]}
    needs = {"exclusiveMinimum": ["minimum"], "exclusiveMaximum": ["maximum"]}
    allows = [
        {"anyOf": [{"required": needed}, {"not": {"required": [keyword]}}]}
        for keyword, needed in needs.items()
    ]
    return {"type": "object", "properties": properties, "allOf": allows}
