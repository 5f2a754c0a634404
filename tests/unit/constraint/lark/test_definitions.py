"""GrammarPiece are named by their content."""

from __future__ import annotations

import re

import pytest

from jan_serve.constraint.ast import Grammar, Literal, Sequence, Until
from jan_serve.constraint.lark.notation import LAZY
from jan_serve.constraint.lark.print_lark import LarkText, print_lark_open
from jan_serve.constraint.lark.references import by_content
from jan_serve.core.constraint import GrammarPiece
from tests.unit.constraint.grammars import grammar_alone

CYCLE = 'start: {0}\n{0}: "x" | "(" {1} ")"\n{1}: {0} "," {0}\n'


def definitions(schema: object) -> GrammarPiece:
    return by_content(print_lark_open(grammar_alone(schema)))


def test_names_do_not_depend_on_the_names_before() -> None:
    assert by_content(LarkText(CYCLE.format("a", "b"), ())) == by_content(
        LarkText(CYCLE.format("q", "p"), ())
    )


def test_texts_that_look_like_names_stay() -> None:
    found = by_content(LarkText('start: "aa" a /[a-b]/\na: "b"\n', ()))
    assert found.definitions[found.root].startswith('"aa" r_')
    assert found.definitions[found.root].endswith("/[a-b]/")


@pytest.mark.parametrize("character", ['"a"', '"\\""', '"\\\\"', '"\\n"', '"\\u00e9"', '"😀"'])
def test_a_character_in_rules_has_a_name(character: str) -> None:
    found = by_content(LarkText(f"start: {character} {character} T\nT: {character} /x/\n", ()))
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
