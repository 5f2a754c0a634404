from __future__ import annotations

import pytest

from jan_serve.constraint import enforced
from jan_serve.core.constraint import CompiledGrammar, GbnfConstraint, JsonSchemaConstraint, RegexConstraint
from jan_serve.errors import GrammarTooComplex
from jan_serve.generation.constraint.constraint_grammar import compile_constraint

# As automata they are longer in one terminal than any print may be.
LONG_TERMINAL = "[a-z]*a[a-z]{6}|[a-z]*b[a-z]{6}"
LONG_NUMBER: dict[str, object] = {"type": "integer", "multipleOf": 151}


def test_what_is_too_long_as_terminals_is_written_as_rules() -> None:
    compiled = compile_constraint(RegexConstraint(LONG_TERMINAL))
    assert compiled.lark.startswith("start:")
    assert len(compiled.lark) < 50_000
    assert not any(line[0].isupper() for line in compiled.lark.splitlines())


def test_gbnf_is_printed_for_those_who_show_it() -> None:
    constraint = RegexConstraint("a+")
    assert compile_constraint(constraint).gbnf == ""
    assert compile_constraint(constraint, with_gbnf=True).gbnf.startswith("root ::=")


def test_a_grammar_over_the_limits_of_llguidance_is_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise GrammarTooComplex("the grammar is too large to be printed as Lark")

    monkeypatch.setattr(enforced, "print_lark_open", refuse)
    with pytest.raises(GrammarTooComplex, match="too large"):
        compile_constraint(GbnfConstraint('root ::= "a"'))


def test_names_are_left_out_by_rules_where_a_text_is_too_long_as_a_terminal() -> None:
    def compiled(value: dict[str, object]) -> CompiledGrammar:
        return compile_constraint(JsonSchemaConstraint({"properties": {"type": value}}))

    assert "~" in compiled({"type": "string"}).lark
    long = compiled(LONG_NUMBER)
    assert "~" not in long.lark
    assert long.memory is not None


def test_a_pattern_is_a_terminal_in_its_own_structure() -> None:
    string = {"type": "string", "pattern": f"^({LONG_TERMINAL})$"}
    compiled = compile_constraint(JsonSchemaConstraint(string))
    assert len(compiled.lark) < 200
    assert compiled.lark.count("{6,6}") == 2


def test_great_bounds_beside_a_pattern_are_another_terminal() -> None:
    string = {"type": "string", "format": "email", "maxLength": 1000}
    assert "{0,1000}" in compile_constraint(JsonSchemaConstraint(string)).lark
    both = compile_constraint(JsonSchemaConstraint({"properties": {"a": string, "b": LONG_NUMBER}}))
    assert " & " not in both.lark and not any(line[0] == "T" for line in both.lark.splitlines())
