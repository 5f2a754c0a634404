"""JSON schemas as TGI reads them. Pure.

TGI turns a schema into a regular expression in which a schema with `properties` is an object with no other members. In
JSON Schema, a schema with `properties` but no `type` allows numbers and texts too, and members of any other name.
"""

from __future__ import annotations

from typing import Any, Final, cast

_OF_ONE: Final = ("items", "additionalProperties", "contains")
_OF_LIST: Final = ("prefixItems", "anyOf", "oneOf")
_BY_NAME: Final = ("properties", "$defs", "definitions")
_SHARED: Final = frozenset(
    ("allOf", "not", "if", "dependentSchemas", "patternProperties", "unevaluatedProperties", "$dynamicRef")
)
"""With one of these, a schema depends on its neighbours: closing one of them could forbid everything."""
_BESIDE_REFERENCES: Final = frozenset(("$ref", "title", "description", "default", "examples"))
_SPEAKS_FOR_ITSELF: Final = ("additionalProperties", "anyOf", "oneOf", "$ref")


def read_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The same schema in standard JSON Schema. Allows nothing that the original forbids."""
    if _any_shared(schema):
        return {**schema, "type": schema.get("type", "object")}
    return _closed(schema)


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    out = dict(schema)
    if "properties" in out:
        out.setdefault("type", "object")
        if not any(keyword in out for keyword in _SPEAKS_FOR_ITSELF):
            out["additionalProperties"] = False
    # Members of alternatives apply together with properties that stand beside these.
    lists = [keyword for keyword in _OF_LIST if "properties" not in schema or keyword == "prefixItems"]
    for keyword in _OF_ONE:
        if keyword in out:
            out[keyword] = _inner(out[keyword])
    for keyword in lists:
        if isinstance(out.get(keyword), list):
            out[keyword] = [_inner(each) for each in out[keyword]]
    for keyword in _BY_NAME:
        if isinstance(out.get(keyword), dict):
            named = cast(dict[str, Any], out[keyword])
            out[keyword] = {name: _inner(each) for name, each in named.items()}
    return out


def _inner(value: Any) -> Any:
    return _closed(cast(dict[str, Any], value)) if isinstance(value, dict) else value


def _any_shared(value: Any) -> bool:
    if isinstance(value, dict):
        entries = cast(dict[str, Any], value)
        refined = "$ref" in entries and not entries.keys() <= _BESIDE_REFERENCES
        if refined or not _SHARED.isdisjoint(entries):
            return True
        return any(map(_any_shared, entries.values()))
    return isinstance(value, list) and any(map(_any_shared, cast(list[Any], value)))
