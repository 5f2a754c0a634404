"""Any JSON value: what `json.dumps` writes, and numbers as a double keeps them."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jan_serve.core.constraint import Whitespace
from tests.unit.constraint.grammars import grammar_alone
from tests.unit.constraint.json_schema.schemas import VALUES
from tests.unit.constraint.recognizer import Recognizer

ANY = Recognizer(grammar_alone(True, whitespace=Whitespace.FLEXIBLE))
COMPACT = Recognizer(grammar_alone(True, whitespace=Whitespace.COMPACT))


@given(VALUES, st.booleans())
def test_what_json_dumps_writes_is_a_value(value: Any, ascii_only: bool) -> None:
    compact = json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":"))
    for text in (
        compact,
        json.dumps(value, ensure_ascii=ascii_only),
        json.dumps(value, indent=4),
        json.dumps(value, indent="\t"),
    ):
        assert ANY.matches(text), text
        assert COMPACT.matches(text) is (text == compact), text


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**30), 10**30))
def test_a_number_is_a_value_where_a_double_keeps_its_digits(value: float) -> None:
    text = json.dumps(value)
    normal = value == 0 or 1e-308 <= abs(value) < 1e308
    assert ANY.matches(text) is normal


@given(st.text("0123456789.eE+-", max_size=9))
def test_a_text_that_is_taken_for_a_number_is_one(text: str) -> None:
    if ANY.matches(text):
        assert math.isfinite(json.loads(text))
