"""Schemas whose keywords all assert something about one value or its parts, to draw."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.unit.constraint.json_schema.schemas import LEAVES, NAMES, PATTERNS, SMALL

_BOUNDS = st.integers(-3, 3) | st.sampled_from([0.5, 1.5])
_CHILDREN = st.dictionaries(st.sampled_from(NAMES), LEAVES, max_size=2)
_KEYWORDS: dict[str, Any] = {
    "type": st.sampled_from(
        ["number", "string", "array", "object", ["integer", "null"], ["boolean", "array"]]
    ),
    "minimum": _BOUNDS,
    "maximum": _BOUNDS,
    "exclusiveMinimum": _BOUNDS,
    "exclusiveMaximum": _BOUNDS,
    "multipleOf": st.sampled_from([1, 2, 0.5]),
    "pattern": PATTERNS,
    "minLength": SMALL,
    "maxLength": SMALL,
    "items": LEAVES,
    "prefixItems": st.lists(LEAVES, min_size=1, max_size=2),
    "contains": LEAVES,
    "minContains": SMALL,
    "maxContains": SMALL,
    "minItems": SMALL,
    "maxItems": SMALL,
    "properties": _CHILDREN,
    "patternProperties": st.dictionaries(st.sampled_from(["^x", "^[ab]"]), LEAVES, max_size=1),
    "additionalProperties": LEAVES,
    "required": st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
    "minProperties": SMALL,
    "maxProperties": SMALL,
}
ASSERTION_SCHEMAS: st.SearchStrategy[dict[str, Any]] = st.sets(
    st.sampled_from(sorted(_KEYWORDS)), max_size=4
).flatmap(lambda chosen: st.fixed_dictionaries({name: _KEYWORDS[name] for name in sorted(chosen)}))
"""Up to four keywords, without references, `enum`, `const`, `uniqueItems` and what applies schemas in place."""
