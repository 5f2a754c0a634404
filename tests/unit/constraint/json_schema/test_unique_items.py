"""Unique items of large sets: the grammar has each in one spelling, and a memory says where they may not repeat."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.constraint.json_schema.unique_items import MAX_ITEMS
from jan_serve.core.constraint import Whitespace
from jan_serve.errors import UnsupportedSchema
from tests.support.tables import table
from tests.unit.constraint.grammars import grammar_alone, grammar_in_rules
from tests.unit.constraint.recognizer import Recognizer, matches

TEXTS: dict[str, Any] = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}


CLOSED: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "b": {"type": "boolean"}},
    "additionalProperties": False,
}


def array(items: Any, **others: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, "uniqueItems": True, **others}


@pytest.mark.parametrize(
    ("items", "spelled", "others"),
    [
        (
            {"type": "string"},
            ['"a/é\x7f"', r'"\n\u0001\"\\"'],
            [r'"\/"', r'"\u0061"', r'"\u000a"', r'"\u001F"', '"\n"'],
        ),
        ({"type": "number"}, ["0", "0.0", "-1.5", "1.0", "120"], ["-0", "1e1", "1.50", "-0.0", "1.00"]),
        ({"type": "integer"}, ["0", "-1", "120"], ["-0", "1.0"]),
        ({"enum": [None, True, *"abcdefgh"]}, ["null", "true", '"a"'], ["false", '"i"']),
    ],
)
def test_each_item_has_one_spelling(items: Any, spelled: list[str], others: list[str]) -> None:
    grammar, _ = grammar_in_rules(array(items), whitespace=Whitespace.COMPACT)
    for text in spelled:
        assert matches(grammar, f"[{text}]"), text
    for text in others:
        assert not matches(grammar, f"[{text}]"), text


@pytest.mark.parametrize(
    ("items", "endless", "most"),
    [
        ({"type": "string"}, True, None),
        ({"type": "string", "pattern": "^[a-l]$"}, False, 12),
        ({"type": "string", "pattern": "^[\ud7f6-\ue000a]$"}, False, 12),  # no text has a surrogate
        ({"type": "integer", "minimum": 1, "maximum": 20}, False, 20),
        ({"enum": [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, "a"]}, False, 9),
        ({"type": "string", "pattern": "^[0-9]{5}$"}, False, MAX_ITEMS),
        ({"type": ["string", "boolean"]}, False, None),
    ],
)
def test_how_many_items_there_may_be(items: Any, endless: bool, most: int | None) -> None:
    grammar, memory = grammar_in_rules(array(items), whitespace=Whitespace.COMPACT)
    assert memory.unique[0].endless == endless
    if most is not None and most < 100:
        recognizer = Recognizer(grammar)
        first = next(text for text in ('"a"', "1", "0") if recognizer.matches(f"[{text}]"))
        assert recognizer.matches(f"[{','.join([first] * most)}]")
        assert not recognizer.matches(f"[{','.join([first] * (most + 1))}]")


def test_more_items_than_values_are_unsatisfiable() -> None:
    with pytest.raises(UnsupportedSchema, match="no JSON value"):
        grammar_in_rules(array({"type": "string", "pattern": "^[a-l]$"}, minItems=13))


@pytest.mark.parametrize(("schema", "reason"), table(__file__, "what_cannot_be_remembered_is_refused"))
def test_what_cannot_be_remembered_is_refused(schema: Any, reason: str | None) -> None:
    if reason is None:
        assert grammar_in_rules(schema)[1] is not None
        return
    with pytest.raises(UnsupportedSchema, match=reason) as refused:
        grammar_in_rules(schema)
    assert refused.value.keyword == "uniqueItems"


def test_without_a_memory_and_with_flexible_white_space_it_is_refused() -> None:
    for translate in (
        lambda: grammar_alone(TEXTS),
        lambda: grammar_in_rules(TEXTS, whitespace=Whitespace.FLEXIBLE),
    ):
        with pytest.raises(UnsupportedSchema, match="at most 8 values"):
            translate()


@pytest.mark.parametrize(
    ("items", "last"),
    [
        (CLOSED, "a"),
        ({**CLOSED, "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}, "b"),
        ({**CLOSED, "properties": {"a": True, "b": {"enum": [*range(9)]}}}, "a"),
        ({**CLOSED, "properties": {"a": True, "b": {"type": "array", "maxItems": 3}}}, "b"),
        ({**CLOSED, "properties": {"a": {"type": "string"}, "b": {"type": "object"}}}, "b"),
    ],
)
def test_closed_objects_end_with_a_member_of_endlessly_many_values(items: Any, last: str) -> None:
    memory = grammar_in_rules(array(items))[1]
    assert [end.place for end in memory.unique[0].last] == [last]
