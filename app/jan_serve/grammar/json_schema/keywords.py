"""The tables of JSON Schema keywords: which ones assert something, which apply subschemas, per draft.

Keywords that are in no table are annotations or unknown, and are ignored as the core specification says.
"""

from __future__ import annotations

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
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
IN_PLACE_KEYWORDS = frozenset(REFERENCES) | {"allOf", "anyOf", "oneOf", "not", "if", "then", "else"}
VALUE_KEYWORDS = frozenset({"type", "enum", "const"})
ASSERTIONS = (
    VALUE_KEYWORDS | NUMBER_KEYWORDS | STRING_KEYWORDS | ARRAY_KEYWORDS | OBJECT_KEYWORDS | IN_PLACE_KEYWORDS
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
    if not isinstance(uri, str):
        return LATEST_DRAFT
    name = uri.strip().rstrip("#").replace("https://json-schema.org/draft-", "http://json-schema.org/draft-")
    return DRAFTS.get(name, LATEST_DRAFT)
