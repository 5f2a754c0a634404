"""The tables of JSON Schema keywords: which ones assert something, which apply subschemas, per draft.

Keywords that are in no table are annotations or unknown, and are ignored as the core specification says.
"""

from __future__ import annotations

from typing import Any

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


def draft_of(uri: object) -> int:
    """The draft that `$schema` names, the latest one where it names none that is known."""
    return declared_draft(uri) or LATEST_DRAFT


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
