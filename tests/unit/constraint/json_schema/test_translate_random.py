"""Random schemas against jsonschema: what the grammar writes is valid, valid instances are accepted, and mutants that
jsonschema refuses are refused."""

from __future__ import annotations

import json
from random import Random
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from jan_serve.constraint.ast import Grammar
from jan_serve.errors import InvalidRequest
from tests.unit.constraint.grammars import grammar_alone
from tests.unit.constraint.json_schema.assertion_schemas import ASSERTION_SCHEMAS
from tests.unit.constraint.json_schema.schemas import NAMES, SCHEMAS, VALUES, is_valid
from tests.unit.constraint.recognizer import Recognizer
from tests.unit.constraint.sampling import Sampler

DRAWN = st.one_of(SCHEMAS, ASSERTION_SCHEMAS, ASSERTION_SCHEMAS.map(lambda schema: {"not": schema}))


def _grammar(schema: Any) -> Grammar | None:
    """The grammar, or None where the schema is refused."""
    try:
        return grammar_alone(schema)
    except InvalidRequest:
        return None


@settings(max_examples=150)
@given(DRAWN, st.integers(0, 2**32))
def test_what_the_grammar_writes_is_valid(schema: Any, seed: int) -> None:
    grammar = _grammar(schema)
    if grammar is None:
        return
    sampler, random, recognizer = Sampler(grammar, depth=12), Random(seed), Recognizer(grammar)
    for _ in range(5):
        text = sampler.text(random)
        assert recognizer.matches(text)
        value = json.loads(text, object_pairs_hook=_without_repeated_names, parse_float=_exact)
        assert _is_open(value) or is_valid(schema, value), text


@settings(max_examples=300)
@given(DRAWN, st.lists(VALUES, min_size=8, max_size=8))
def test_a_value_is_accepted_exactly_if_it_is_valid(schema: Any, values: list[Any]) -> None:
    # Naming all properties first fixes one order for every schema and instance; constants follow their own members.
    schema = json.loads(json.dumps(schema, sort_keys=True))
    grammar = _grammar({"$defs": {"s": schema}, "allOf": [_ORDER, {"$ref": "#/$defs/s"}]})
    if grammar is None:
        return
    for value in values:
        text = json.dumps(value, sort_keys=True)
        # Each text has the whole of a recognizer's limit.
        assert Recognizer(grammar).matches(text) == is_valid(schema, value), text


_ORDER: Any = {
    "properties": {name: True for name in NAMES},
    "additionalProperties": {"$ref": "#/allOf/0"},
    "items": {"$ref": "#/allOf/0"},
}
for _name in NAMES:
    _ORDER["properties"][_name] = {"$ref": "#/allOf/0"}
_NO_VERDICT = object()


def _without_repeated_names(pairs: list[tuple[str, Any]]) -> Any:
    """Unlisted names may repeat, which JSON Schema gives no meaning to."""
    if len({name for name, _ in pairs}) < len(pairs) or any(_is_open(value) for _, value in pairs):
        return _NO_VERDICT
    return dict(pairs)


def _exact(text: str) -> Any:
    """jsonschema computes with doubles: it can only judge decimals that are short enough for them."""
    digits = sum(c.isdigit() for c in text.lower().partition("e")[0])
    return float(text) if digits <= 15 else _NO_VERDICT


def _is_open(value: Any) -> bool:
    return value is _NO_VERDICT or (isinstance(value, list) and any(map(_is_open, cast("list[Any]", value))))
