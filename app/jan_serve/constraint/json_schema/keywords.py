"""The tables of JSON Schema: keywords that assert something or apply subschemas, per draft, and the drafts'
meta-schemas. Keywords that are in no table are annotations or unknown, and are ignored as the core specification
says."""

from __future__ import annotations

from typing import Any, Final

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

# Keywords that can make an instance invalid. A schema without any of them is the true schema.
NUMBER_KEYWORDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
STRING_KEYWORDS = frozenset({"pattern", "minLength", "maxLength", "format", "contentEncoding"})
ARRAY_KEYWORDS = frozenset(
    {"items", "prefixItems", "additionalItems", "contains", "minContains", "maxContains"}
    | {"minItems", "maxItems", "uniqueItems", "unevaluatedItems"}
)
OBJECT_KEYWORDS = frozenset(
    {"properties", "patternProperties", "additionalProperties", "propertyNames", "required"}
    | {"minProperties", "maxProperties", "dependencies", "dependentRequired", "dependentSchemas"}
    | {"unevaluatedProperties"}
)
DYNAMIC_REFERENCES = ("$dynamicRef", "$recursiveRef")
UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
REFERENCES = ("$ref", *DYNAMIC_REFERENCES)
IN_PLACE_KEYWORDS = frozenset(REFERENCES) | {"allOf", "anyOf", "oneOf", "not", "if", "then", "else"}
VALUE_KEYWORDS = frozenset({"type", "enum", "const"})
ASSERTIONS = (
    VALUE_KEYWORDS | NUMBER_KEYWORDS | STRING_KEYWORDS | ARRAY_KEYWORDS | OBJECT_KEYWORDS | IN_PLACE_KEYWORDS
)
# What a schema means does not depend on these. Definitions mean something where a reference names them.
ANNOTATIONS = frozenset(
    {"title", "description", "default", "example", "examples", "deprecated", "readOnly", "writeOnly"}
    | {"$comment", "markdownDescription", "$defs", "definitions"}
)

# Where subschemas live: one schema, a list of schemas, or a map of schemas.
SCHEMA_KEYWORDS = frozenset(
    {"additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames"}
    | {"then", "unevaluatedItems", "unevaluatedProperties", "contentSchema"}
)
SCHEMA_LIST_KEYWORDS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
SCHEMA_MAP_KEYWORDS = frozenset(
    {"$defs", "definitions", "properties", "patternProperties", "dependentSchemas", "dependencies"}
)

DRAFTS = {
    "http://json-schema.org/draft-03/schema": 3,
    "http://json-schema.org/draft-04/schema": 4,
    "http://json-schema.org/draft-06/schema": 6,
    "http://json-schema.org/draft-07/schema": 7,
    "https://json-schema.org/draft/2019-09/schema": 2019,
    "https://json-schema.org/draft/2020-12/schema": 2020,
}
LATEST_DRAFT = 2020


def declared_draft(uri: object) -> int | None:
    """The draft that `$schema` names, if it is known."""
    if not isinstance(uri, str):
        return None
    name = uri.strip().rstrip("#").replace("https://json-schema.org/draft-", "http://json-schema.org/draft-")
    return DRAFTS.get(name)


_SINCE_6 = frozenset({"const", "contains", "propertyNames"})
_SINCE_7 = frozenset({"if", "then", "else", "contentEncoding"})
_SINCE_2019 = frozenset(
    {"minContains", "maxContains", "dependentRequired", "dependentSchemas", "$recursiveRef"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
_SINCE_2020 = frozenset({"prefixItems", "$dynamicRef"})
# Keywords that the latest draft no longer has.
DROPPED = frozenset({"dependencies", "additionalItems", "$recursiveRef"})
_FOREIGN = {
    3: _SINCE_6 | _SINCE_7 | _SINCE_2019 | _SINCE_2020,
    4: _SINCE_6 | _SINCE_7 | _SINCE_2019 | _SINCE_2020,
    6: _SINCE_7 | _SINCE_2019 | _SINCE_2020,
    7: _SINCE_2019 | _SINCE_2020,
    2019: _SINCE_2020 | {"dependencies"},
    2020: DROPPED,
}


def known_keywords(schema: dict[str, Any], draft: int) -> dict[str, Any]:
    """The members that mean something in a draft. Up to draft 7 a `$ref` hides all that stands beside it."""
    if draft <= 7 and "$ref" in schema:
        return {"$ref": schema["$ref"]}
    foreign = _FOREIGN[draft]
    return schema if foreign.isdisjoint(schema) else {k: v for k, v in schema.items() if k not in foreign}


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
