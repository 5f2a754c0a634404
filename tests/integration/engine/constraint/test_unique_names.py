"""No object has a name twice: all other texts can be written, however they are cut into tokens, and none gets stuck."""

from __future__ import annotations

import itertools
import json
from random import Random
from typing import Any

import jsonschema
import pytest

from jan_serve.constraint.enforce import enforce
from jan_serve.core.constraint import JsonObjectConstraint, JsonSchemaConstraint, PropertyOrder, Whitespace
from jan_serve.engine.constraint.uniqueness_executor import UniquenessExecutor
from jan_serve.errors import UnsupportedSchema
from tests.integration.engine.constraint.test_uniqueness_executor import (
    FACTORY,
    PIECES,
    allowed,
    cuts,
    executor_of,
    left_by_grammar,
    takes,
    walk,
)
from tests.support.tables import table
from tests.unit.constraint.grammars import grammar_alone, grammar_in_rules

INTEGER = {"type": "integer"}
CLOSED = {"additionalProperties": False}
# Each with the names that members are drawn from.
SCHEMAS: dict[str, tuple[dict[str, Any], list[str]]] = table(__file__, "schemas")


def schema_of(name: str) -> dict[str, Any]:
    return {"type": "object", **SCHEMAS[name][0]}


def differ(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({name for name, _ in pairs}) == len(pairs), pairs
    return dict(pairs)


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_is_written_is_valid_and_never_stuck(name: str) -> None:
    random = Random(name)
    validator: Any = jsonschema.Draft202012Validator(schema_of(name))
    finished = 0
    for _ in range(6):
        text = walk(executor_of(schema_of(name)), random, 60)
        if text is not None:
            finished += 1
            assert validator.is_valid(json.loads(text, object_pairs_hook=differ)), text
    assert finished > 2


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("layout", [(",", ":"), (", ", ": ")], ids=["compact", "spaced"])
def test_exactly_the_objects_of_different_names_are_taken(name: str, layout: tuple[str, str]) -> None:
    """Against a brute-force checker: members in any number, with and without repetition; listed ones are in order."""
    random = Random(name)
    schema, names = schema_of(name), SCHEMAS[name][1]
    validator: Any = jsonschema.Draft202012Validator(schema)
    listed = list(schema.get("properties", {}))
    start = executor_of(schema)
    comma, colon = layout
    for count in [2, 2, 3, 4, 6] * 2:
        if random.random() < 0.5:
            chosen = random.choices(names, k=count)
        else:
            chosen = random.sample(names, min(count, len(names)))
        chosen.sort(key=lambda name: listed.index(name) if name in listed else len(listed))
        members = [f"{json.dumps(name, ensure_ascii=False)}{colon}1" for name in chosen]
        text = "{" + comma.join(members) + "}"
        valid = len(set(chosen)) == len(chosen) and validator.is_valid(json.loads(text))
        assert takes(start.copy(), text, random) == valid, text


def test_every_beginning_of_a_few_names_is_right() -> None:
    """All texts of objects over four names, character by character."""
    words = ["a", "ab", "b", "bé"]
    schema: Any = {
        "type": "object",
        "patternProperties": {"^(a|ab|b|bé)$": {"const": True}},
        **CLOSED,
        "minProperties": 1,
    }
    texts = [
        ("{" + ",".join(f'"{name}":true' for name in names) + "}").encode()
        for count in range(1, 5)
        for names in itertools.permutations(words, count)
    ]
    random = Random(5)
    beginnings = sorted({text[:end] for text in texts for end in range(len(text))})
    start = executor_of(schema, Whitespace.COMPACT)
    tokens = range(2, len(PIECES))
    for beginning in random.sample(beginnings, 60):
        executor = start.copy()
        for token in cuts(beginning, random):
            assert executor.allows(token)
            executor.accept(token)
        expected = [
            token for token in tokens if any(text.startswith(beginning + PIECES[token]) for text in texts)
        ]
        assert [token for token in tokens if executor.allows(token)] == expected, beginning
        assert allowed(executor) == [token for token in left_by_grammar(executor) if token in expected]


IN_ANY_ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {"a": INTEGER, "b": {"const": True}, "é": INTEGER, "r": INTEGER, "z": {"type": "null"}},
}


@pytest.mark.parametrize(
    ("others", "text", "valid"), table(__file__, "listed_properties_and_others_come_in_any_order")
)
def test_listed_properties_and_others_come_in_any_order(
    others: dict[str, Any], text: str, valid: bool
) -> None:
    assert takes(in_any_order(others), text, Random(7)) is valid, text


def in_any_order(others: dict[str, Any]) -> UniquenessExecutor:
    constraint = JsonSchemaConstraint(IN_ANY_ORDER | others, property_order=PropertyOrder.ANY)
    executor = FACTORY.create(enforce(constraint).compiled)
    assert isinstance(executor, UniquenessExecutor)
    return executor


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ('{"a": 1, "b": {"a": 1}}', True),
        ('[{"a": 1}, {"a": 1}]', False),
        ('{"a": 1, "a": 2}', False),
        ('{"x": [{"a": {}, "a": {}}]}', False),
        ('{"x": "{\\"a\\": 1, \\"a\\": 1}"}', True),
        ('{"\\u0061": 1}', False),
        ('{"\\u0001": 1, "é": "\\u0061"}', True),
    ],
)
@pytest.mark.parametrize("whitespace", [Whitespace.CONSISTENT, Whitespace.FLEXIBLE])
def test_names_differ_in_any_json_object(text: str, valid: bool, whitespace: Whitespace) -> None:
    executor = FACTORY.create(enforce(JsonObjectConstraint(whitespace)).compiled)
    assert isinstance(executor, UniquenessExecutor)
    assert takes(executor, text, Random(1)) is valid


@pytest.mark.parametrize(
    ("schema", "reason"), table(__file__, "names_that_may_run_out_undecided_are_refused")
)
def test_names_that_may_run_out_undecided_are_refused(schema: Any, reason: str) -> None:
    with pytest.raises(UnsupportedSchema, match=reason) as refused:
        grammar_in_rules(schema)
    assert refused.value.keyword == "patternProperties"
    grammar_alone({"type": "array"})
