"""Definitions are named by their content."""

from __future__ import annotations

from jan_serve.grammar import json_schema_to_grammar, print_lark_open
from jan_serve.grammar.lark_definitions import Definitions, by_content
from jan_serve.grammar.print_lark import LarkText

CYCLE = 'start: {0}\n{0}: "x" | "(" {1} ")"\n{1}: {0} "," {0}\n'


def definitions(schema: object) -> Definitions:
    return by_content(print_lark_open(json_schema_to_grammar(schema)))


def test_names_do_not_depend_on_the_names_before() -> None:
    assert by_content(LarkText(CYCLE.format("a", "b"), ())) == by_content(
        LarkText(CYCLE.format("q", "p"), ())
    )


def test_another_body_anywhere_below_is_another_name() -> None:
    one = by_content(LarkText(CYCLE.format("a", "b"), ()))
    other = by_content(LarkText(CYCLE.format("a", "b").replace('","', '";"'), ()))
    assert not one.bodies.keys() & other.bodies.keys()


def test_texts_that_look_like_names_stay() -> None:
    found = by_content(LarkText('start: "a" a /[a-b]/\na: "b"\n', ()))
    assert found.bodies[found.root].startswith('"a" r_')
    assert found.bodies[found.root].endswith("/[a-b]/")


def test_control_tokens_are_named_by_their_text() -> None:
    one = by_content(LarkText('start: special "x"\n', (("special", "<|a|>"),)))
    other = by_content(LarkText('start: "y" special_2\n', (("special_2", "<|a|>"),)))
    assert one.specials == other.specials


def test_schemas_share_what_they_have_in_common() -> None:
    a = definitions({"type": "object", "properties": {"a": {}}, "additionalProperties": False})
    b = definitions({"type": "object", "properties": {"b": {}}, "additionalProperties": False})
    assert a.root != b.root
    own = "\n".join(a.bodies[name] for name in a.bodies.keys() - b.bodies.keys())
    assert (
        len(a.bodies.keys() - b.bodies.keys()) == 7
    )  # two of members, one of each layout but the first, and the root
    assert own.count('"\\"a\\""') == 2
