"""Cycles of rules are solved into expressions, chains kept short, and definitions named by content."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.constraint.ast import Expr, Grammar, Literal, RuleRef, Sequence, Until, choice, sequence
from jan_serve.constraint.lark.notation import LAZY
from jan_serve.constraint.lark.print_lark import print_lark_open
from jan_serve.constraint.lark.references import NotRegular, by_content, solve
from jan_serve.core.constraint import CompiledGrammar, GrammarPiece
from tests.unit.constraint.grammars import grammar_alone
from tests.unit.constraint.matching import belongs, texts

NAMES = ("root", "r1", "r2", "r3")
A, B = Literal("a"), Literal("b")
STEPS = st.tuples(st.sampled_from(["a", "b", "ab"]), st.sampled_from(NAMES))


def _render(expr: Expr) -> str:
    """The literals and groups of literals that these tests use, for `re`."""
    if isinstance(expr, Literal):
        return expr.text
    assert not isinstance(expr, RuleRef)
    parts = [_render(item) for item in getattr(expr, "items", ())]
    return "(?:" + ("|" if type(expr).__name__ == "Choice" else "").join(parts) + ")"


def _solved(rules: dict[str, Expr]) -> re.Pattern[str]:
    printed = solve(rules, _render, lambda text: f"(?:{text})")
    return re.compile(printed["root"].replace('""', "(?:)"), re.VERBOSE)


def _body(steps: list[tuple[str, str]], end: str | None) -> Expr:
    moves = [sequence([Literal(text), RuleRef(name)]) for text, name in steps]
    return choice([*moves, *([] if end is None else [Literal(end) if end else sequence([])])])


@given(
    st.tuples(*(st.lists(STEPS, max_size=3) for _ in NAMES)),
    st.tuples(*(st.sampled_from(["", "a", "b"]) for _ in NAMES)),
)
def test_the_expression_has_the_texts_of_the_rules(
    steps: tuple[list[tuple[str, str]], ...], ends: tuple[str, ...]
) -> None:
    rules = {name: _body(own, end) for name, own, end in zip(NAMES, steps, ends, strict=True)}
    pattern, grammar = _solved(rules), Grammar(rules)
    for text in texts("ab", 5):
        assert bool(pattern.fullmatch(text)) is belongs(grammar, text), (text, pattern.pattern)


def test_many_rules_are_left_alone() -> None:
    rules: dict[str, Expr] = {f"r{n}": sequence([A, RuleRef(f"r{n + 1}")]) for n in range(150)}
    with pytest.raises(NotRegular):
        _solved({"root": RuleRef("r0"), **rules, "r150": B})


CYCLE = 'start: {0}\n{0}: "x" | "(" {1} ")"\n{1}: {0} "," {0}\n'


def definitions(schema: object) -> GrammarPiece:
    return by_content(print_lark_open(grammar_alone(schema)))


def test_names_do_not_depend_on_the_names_before() -> None:
    assert by_content(CompiledGrammar(CYCLE.format("a", "b"))) == by_content(
        CompiledGrammar(CYCLE.format("q", "p"))
    )


def test_texts_that_look_like_names_stay() -> None:
    found = by_content(CompiledGrammar('start: "aa" a /[a-b]/\na: "b"\n'))
    assert found.definitions[found.root].startswith('"aa" r_')
    assert found.definitions[found.root].endswith("/[a-b]/")


@pytest.mark.parametrize("character", ['"a"', '"\\""', '"\\\\"', '"\\n"', '"\\u00e9"', '"😀"'])
def test_a_character_in_rules_has_a_name(character: str) -> None:
    found = by_content(CompiledGrammar(f"start: {character} {character} T\nT: {character} /x/\n"))
    [name] = [name for name, body in found.definitions.items() if body == character]
    bodies = sorted(body for body in found.definitions.values() if body != character)
    assert bodies[0] == f"{character} /x/" and bodies[1].startswith(f"{name} {name} T_")


def test_texts_before_a_control_token_are_named_by_their_content() -> None:
    def printed(item: Until, *before: Until) -> GrammarPiece:
        return by_content(print_lark_open(Grammar({"root": Sequence((*before, Literal("a"), item))})))

    item, other = Until(0, 5, "<|a|>", "<|a|>"), Until(0, 6, "<|a|>", "<|a|>")
    one, both = printed(item), printed(item, other)
    assert {*one.specials} < {*both.specials}
    for special in both.specials:
        body = special.with_token.removesuffix("?") or special.spelled
        used = {name for name in re.findall(r"\w+", body) if name[:2] in ("r_", "T_")}
        assert used <= {name.removesuffix(LAZY) for name in both.definitions}


def test_schemas_share_what_they_have_in_common() -> None:
    a = definitions({"type": "object", "properties": {"a": {}}, "additionalProperties": False})
    b = definitions({"type": "object", "properties": {"b": {}}, "additionalProperties": False})
    assert a.root != b.root
    own = "\n".join(a.definitions[name] for name in a.definitions.keys() - b.definitions.keys())
    assert (
        len(a.definitions.keys() - b.definitions.keys()) == 7
    )  # two of members, one of each layout but the first, and the root
    assert own.count('"\\"a\\""') == 2
