from __future__ import annotations

from typing import Any

import pytest

from jan_serve.constraint import enforce as module
from jan_serve.constraint.enforce import enforce
from jan_serve.constraint.parse_gbnf import parse_gbnf
from jan_serve.core.constraint import (
    CompiledGrammar,
    Constraint,
    GbnfConstraint,
    JsonObjectConstraint,
    JsonSchemaConstraint,
    RegexConstraint,
    Whitespace,
)
from jan_serve.errors import GrammarTooComplex

# As automata they are longer in one terminal than any print may be.
LONG_TERMINAL = "[a-z]*a[a-z]{6}|[a-z]*b[a-z]{6}"
LONG_NUMBER: dict[str, object] = {"type": "integer", "multipleOf": 151}


def test_what_is_too_long_as_terminals_is_written_as_rules() -> None:
    compiled = enforce(RegexConstraint(LONG_TERMINAL)).compiled
    assert compiled.lark.startswith("start:")
    assert len(compiled.lark) < 50_000
    assert not any(line[0].isupper() for line in compiled.lark.splitlines())


INDENTED, AS_LARK, NAMES, ITEMS = "indented", "runs this as Lark", "a name twice", "`uniqueItems`"
TAGS: dict[str, Any] = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
CLOSED: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "additionalProperties": False,
}
SHOWN: dict[str, tuple[Constraint, tuple[str, ...]]] = {
    "expression": (RegexConstraint("a+"), ()),
    "GBNF": (GbnfConstraint('root ::= "a" | "b"'), ()),
    "a scalar": (JsonSchemaConstraint({"enum": ["a", 1]}), ()),
    "listed names": (JsonSchemaConstraint(CLOSED), (INDENTED,)),
    "in one layout": (JsonSchemaConstraint(CLOSED, Whitespace.COMPACT), ()),
    "any names": (JsonObjectConstraint(), (INDENTED, NAMES)),
    "a pattern": (JsonSchemaConstraint({"type": "string", "pattern": "^(a|bc)+$"}), (AS_LARK,)),
    "names beside listed ones": (JsonSchemaConstraint({"properties": {"a": {}}}), (INDENTED, AS_LARK, NAMES)),
    "items that differ": (JsonSchemaConstraint(TAGS), (INDENTED, ITEMS)),
}


@pytest.mark.parametrize("case", SHOWN)
def test_gbnf_says_what_it_leaves_out_of_what_runs(case: str) -> None:
    constraint, differences = SHOWN[case]
    found = enforce(constraint)
    gbnf = found.gbnf()
    comments = [line for line in gbnf.splitlines() if line.startswith("#")]
    assert gbnf.splitlines()[len(comments)].startswith("root ::=")
    assert len(comments) == len(differences)
    assert all(words in line for words, line in zip(differences, comments, strict=True))
    assert all(line.endswith(".") for line in comments)
    parse_gbnf(gbnf)


def test_what_gbnf_cannot_hold_is_said_to_run() -> None:
    url: dict[str, Any] = {"type": "string", "format": "uri", "pattern": "^https://", "maxLength": 2048}
    found = enforce(JsonSchemaConstraint({"properties": {"a": url}}))
    with pytest.raises(
        GrammarTooComplex, match="the server takes this as Lark, and GBNF cannot say it: "
    ) as refused:
        found.gbnf()
    assert refused.value.pointer == "/properties/a"


def test_a_grammar_over_the_limits_of_llguidance_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise GrammarTooComplex("the grammar is too large to be printed as Lark")

    monkeypatch.setattr(module, "print_lark_open", refuse)
    with pytest.raises(GrammarTooComplex, match="too large"):
        enforce(GbnfConstraint('root ::= "a"'))


def test_names_are_left_out_by_rules_where_a_text_is_too_long_as_a_terminal() -> None:
    def compiled(value: dict[str, object]) -> CompiledGrammar:
        return enforce(JsonSchemaConstraint({"properties": {"type": value}})).compiled

    assert "~" in compiled({"type": "string"}).lark
    long = compiled(LONG_NUMBER)
    assert "~" not in long.lark
    assert long.uniqueness is not None


def test_a_pattern_is_a_terminal_in_its_own_structure() -> None:
    string = {"type": "string", "pattern": f"^({LONG_TERMINAL})$"}
    compiled = enforce(JsonSchemaConstraint(string)).compiled
    assert len(compiled.lark) < 200
    assert compiled.lark.count("{6,6}") == 2


def test_great_bounds_beside_a_pattern_are_another_terminal() -> None:
    string = {"type": "string", "format": "email", "maxLength": 1000}
    assert "{0,1000}" in enforce(JsonSchemaConstraint(string)).compiled.lark
    both = enforce(JsonSchemaConstraint({"properties": {"a": string, "b": LONG_NUMBER}})).compiled
    assert " & " not in both.lark and not any(line[0] == "T" for line in both.lark.splitlines())
