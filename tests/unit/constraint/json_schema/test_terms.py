"""Conjunctions of terms, simplified as far as their text shows."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.constraint.json_schema.document import Document, Node
from jan_serve.constraint.json_schema.ir import TRUE, Conj
from jan_serve.constraint.json_schema.terms import Terms
from jan_serve.errors import UnsupportedSchema

PARTS: dict[str, Any] = {
    "number": {"minimum": 1},
    "same": {"minimum": 1},
    "one": {"const": 1},
    "true": {"const": True},
    "title": {"title": "any", "x": 1},
    "open": True,
    "closed": False,
    "to number": {"$ref": "#/$defs/number"},
    "to that": {"$ref": "#/$defs/to%20number", "title": "on"},
    "to closed": {"$ref": "#/$defs/closed"},
    "to open": {"$ref": "#/$defs/title"},
    "with more": {"$ref": "#/$defs/number", "maximum": 3},
    "loop": {"$ref": "#/$defs/back"},
    "back": {"$ref": "#/$defs/loop"},
}


class Parts:
    """The schemas above as nodes of one document."""

    def __init__(self) -> None:
        document = Document({"$defs": PARTS})
        self.terms = Terms(document)
        self.nodes: dict[str, Node] = {name: document.child(document.root, "$defs", name) for name in PARTS}

    def holds(self, name: str) -> Conj:
        return self.terms.positive(self.nodes[name])

    def fails(self, name: str) -> Conj:
        return self.terms.negative(self.nodes[name])


@pytest.fixture
def parts() -> Parts:
    return Parts()


def test_schemas_without_assertions_are_no_terms(parts: Parts) -> None:
    false = parts.terms.false
    for name in ("title", "open", "to open"):
        assert (parts.holds(name), parts.fails(name)) == (TRUE, false)
    for name in ("closed", "to closed"):
        assert (parts.holds(name), parts.fails(name)) == (false, TRUE)


def test_a_reference_stands_for_its_target(parts: Parts) -> None:
    number = parts.nodes["number"]
    assert parts.holds("to number") == parts.holds("to that") == (number.positive,)
    assert parts.fails("to that") == (number.negative,)
    assert parts.holds("with more") == (parts.nodes["with more"].positive,)


def test_references_that_lead_back_are_refused(parts: Parts) -> None:
    with pytest.raises(UnsupportedSchema) as caught:
        parts.holds("loop")
    assert (caught.value.pointer, caught.value.keyword) == ("/$defs/loop", "$ref")


def test_both_of_two_conjunctions(parts: Parts) -> None:
    conjoin, false = parts.terms.conjoin, parts.terms.false
    number, one = parts.holds("number"), parts.holds("one")
    assert conjoin(number, TRUE) == conjoin(TRUE, number) == conjoin(number, number) == number
    assert conjoin(number, one) == (*number, *one)
    assert conjoin(conjoin(number, one), conjoin(one, number)) == (*number, *one)
    assert conjoin(number, false) == conjoin(false, number) == false


def test_a_visible_contradiction_is_false(parts: Parts) -> None:
    conjoin, false = parts.terms.conjoin, parts.terms.false
    assert conjoin(parts.holds("number"), parts.fails("number")) == false
    assert conjoin(parts.holds("number"), parts.fails("same")) == false, "two places with the same text"
    assert conjoin(parts.holds("one"), parts.fails("true")) != false, "1 is not true"
    assert conjoin(parts.holds("one"), parts.holds("true")) != false, "what the text does not show stays"
