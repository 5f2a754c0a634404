"""Layouts: JSON is compact, spaced or indented throughout, and every reader of a grammar agrees on it."""

from __future__ import annotations

import json
import re
from functools import partial
from random import Random
from sys import modules
from typing import Any

import pytest

from jan_serve.constraint.ast import Grammar, OneLayout
from jan_serve.constraint.lark.print_lark import print_lark
from jan_serve.constraint.layout import with_optional_spaces
from jan_serve.constraint.rules import has_node
from jan_serve.core.constraint import Whitespace
from tests.conformance.llguidance_oracle import LlguidanceOracle
from tests.unit.constraint.grammars import grammar_alone
from tests.unit.constraint.recognizer import Recognizer

FORMS: dict[str, dict[str, Any]] = {
    "compact": {"separators": (",", ":")},
    "spaced": {},
    "two": {"indent": 2},
    "four": {"indent": 4},
    "tab": {"indent": "\t"},
}
OTHERS: tuple[dict[str, Any], ...] = (
    {"indent": 0},
    {"indent": 1},
    {"indent": 3},
    {"indent": 8},
    {"indent": "\t "},
    {"separators": (", ", ":")},
    {"separators": (",", ": ")},
    {"indent": 2, "separators": (",", ":")},
    {"indent": 2, "separators": (", ", ": ")},
)
SCHEMAS: dict[str, Any] = {
    "anything": True,
    "any object": {"type": "object"},
    "recursive": {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/list"}, "b": True},
                "additionalProperties": {"$ref": "#/$defs/node"},
            },
            "list": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "integer"}]}},
        },
    },
    "counted": {"minProperties": 1, "maxItems": 3, "contains": True},
    "positions": {"prefixItems": [True, True], "items": True},
}


def judges(grammar: Grammar) -> list[Any]:
    recognizer, oracle = Recognizer(grammar), LlguidanceOracle()
    matcher = oracle.compile(print_lark(grammar))
    return [recognizer.matches, partial(oracle.accepts, matcher)]


def value(random: Random, depth: int) -> Any:
    """Without white space in its strings."""
    kind = random.random()
    if depth == 0 or kind < 0.3:
        return random.choice([1, 22, "a", "bc", None, True])
    count = random.randint(0, 3)
    if kind < 0.6:
        return [value(random, depth - 1) for _ in range(count)]
    return {name: value(random, depth - 1) for name in "abc"[:count]}


def forms(item: Any) -> list[str]:
    return [json.dumps(item, **options) for options in FORMS.values()]


def with_another_space(text: str, random: Random) -> str:
    """White space put in, doubled, changed or left out at one place."""
    places = [index for index, c in enumerate(text) if c in " \n\t,:{}[]"]
    at = random.choice(places)
    return (
        text[:at]
        + random.choice(("", " ", "\n", "  ", "\t", text[at] * 2))
        + text[at + random.randint(0, 1) :]
    )


@pytest.mark.parametrize("name", SCHEMAS)
def test_all_white_space_is_of_one_layout(name: str) -> None:
    random, (reference, executor) = Random(3), judges(grammar_alone(SCHEMAS[name]))
    accepted = 0
    for _ in range(60):
        item = value(random, 5)
        good = forms(item)
        valid = reference(good[0])
        accepted += valid
        for text in good:
            assert reference(text) is valid, text
            assert executor(text) is valid, text
        if not valid or good[0][0] not in "[{":
            continue
        others = [json.dumps(item, **options) for options in OTHERS]
        for text in (*others, *(with_another_space(random.choice(good), random) for _ in range(10))):
            try:
                read = json.loads(text)
            except ValueError:
                read = None
            expected = read is not None and text in forms(read) and reference(forms(read)[0])
            assert reference(text) is expected, text
            assert executor(text) is expected, text
    assert accepted > 5


@pytest.mark.parametrize("whitespace", Whitespace)
def test_each_kind_of_white_space(whitespace: Whitespace) -> None:
    texts = {
        '{"a":[1,2]}': True,
        '{"a": [1, 2]}': whitespace is not Whitespace.COMPACT,
        '{\n\t"a": [\n\t\t1,\n\t\t2\n\t]\n}': whitespace is not Whitespace.COMPACT,
        '{"a":[1, 2]}': whitespace is Whitespace.FLEXIBLE,
        '{\n      "a": [1,2]}': whitespace is Whitespace.FLEXIBLE,
        '{"a":  [1,2]}': False,
        '{"a" : [1,2]}': False,
    }
    for judge in judges(grammar_alone({"type": "object"}, whitespace=whitespace)):
        assert {text: judge(text) for text in texts} == texts


def test_what_is_too_large_in_all_layouts_is_as_json_dumps_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    grammar = grammar_alone(SCHEMAS["recursive"])
    whole = len(print_lark(grammar))
    monkeypatch.setattr(modules["jan_serve.constraint.lark.print_lark"], "MAX_LARK_BYTES", whole * 3 // 4)
    oracle = LlguidanceOracle()
    matcher = oracle.compile(print_lark(grammar))
    item: dict[str, Any] = {"a": [1, {}], "c": {"b": []}}
    assert [oracle.accepts(matcher, text) for text in forms(item)] == [False, True, False, False, False]


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_with_optional_spaces_is_every_text_on_one_line(schema: Any) -> None:
    random = Random(5)
    grammar = grammar_alone(schema)
    one_line = with_optional_spaces(grammar)
    assert not has_node(one_line, OneLayout) and len(one_line.rules) == len(grammar.rules) + 2
    laid_out, judged = judges(grammar), judges(one_line)
    for item in (value(random, 3) for _ in range(60)):
        for name, options in FORMS.items():
            text = json.dumps(item, **options)
            expected = laid_out[0](text) and (name in ("compact", "spaced") or "\n" not in text)
            assert [accepts(text) for accepts in judged] == [expected] * 2, text
        mixed = re.sub(
            "[,:]", lambda mark: mark[0] + random.choice(("", " ")), json.dumps(item, separators=(",", ":"))
        )
        assert len({accepts(mixed) for accepts in judged}) == 1
        assert judged[0](mixed) == laid_out[0](json.dumps(item)), mixed
