"""Terminals that make masks fast change none: that of the beginning of a free string, and that of a length."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from jan_serve.constraint.enforce import enforce
from jan_serve.core.constraint import JsonSchemaConstraint, Whitespace
from jan_serve.engine.constraint.grammar_executor import GrammarExecutor
from tests.unit.engine.constraint.test_uniqueness_executor import FACTORY, LOGITS, PIECES

STRINGS: dict[str, dict[str, Any]] = {
    "a word": {"pattern": "ok"},
    "a run": {"pattern": "[a-z]{3}"},
    "an end": {"pattern": "\\.(js|ts)$"},
    "two": {"allOf": [{"pattern": "a"}, {"pattern": "[0-9]"}]},
    "no end": {"not": {"pattern": "x$"}},
}


def executors(schema: dict[str, Any]) -> tuple[GrammarExecutor, GrammarExecutor]:
    """Of the grammar, and of it without the terminals of beginnings."""
    grammar = enforce(JsonSchemaConstraint(schema, Whitespace.FLEXIBLE)).compiled()
    lark, count = re.subn(r" \| T\w* /\[\^\\s\\S\]/", "", grammar.lark)
    assert count
    return FACTORY.create(grammar), FACTORY.create(msgspec.structs.replace(grammar, lark=lark))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", STRINGS)
@pytest.mark.parametrize("place", ["value", "item", "name"])
def test_masks_are_those_of_the_grammar_without_it(name: str, place: str, seed: int) -> None:
    random, string = Random(seed), {"type": "string", **STRINGS[name]}
    schema = {
        "value": string,
        "item": {"type": "array", "items": {"anyOf": [string, {"type": "null"}]}},
        "name": {"type": "object", "propertyNames": STRINGS[name], "additionalProperties": {"type": "null"}},
    }[place]
    one, other = executors(schema)
    for _ in range(60):
        masks = [np.isfinite(executor.mask(LOGITS)) for executor in (one, other)]
        assert (masks[0] == masks[1]).all()
        choices = np.flatnonzero(masks[0])
        if not len(choices):
            break
        token = int(random.choice(list(choices)))
        for executor in (one, other):
            executor.accept(token)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "string",
    [
        {"pattern": "^[a-z]+[.][a-z]{2,}$", "maxLength": 80},
        {"pattern": "^[a-c]+-[a-z]*$", "maxLength": 70, "minLength": 66},
        {"pattern": "^(ab)*$", "maxLength": 65},
        {"pattern": "[0-9]x", "maxLength": 64},
    ],
)
def test_great_bounds_have_the_masks_of_an_automaton(string: dict[str, Any], seed: int) -> None:
    random, schema = Random(seed), {"type": "string", **string}
    constraint = JsonSchemaConstraint(schema, Whitespace.FLEXIBLE)
    counted = FACTORY.create(enforce(constraint).compiled())
    automaton = FACTORY.create(
        enforce(JsonSchemaConstraint(schema, Whitespace.FLEXIBLE), alone=True).compiled()
    )
    for _ in range(90):
        masks = [np.isfinite(executor.mask(LOGITS)) for executor in (counted, automaton)]
        assert (masks[0] == masks[1]).all()
        # Short tokens, so that some texts reach their bound; not the end of the string while it can be avoided.
        choices = [int(token) for token in np.flatnonzero(masks[0]) if token < 60]
        if not choices:
            break
        token = random.choice([each for each in choices if PIECES[each] not in (b'"', b"\\")] or choices)
        for executor in (counted, automaton):
            executor.accept(token)
