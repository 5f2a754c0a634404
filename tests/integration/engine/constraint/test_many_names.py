"""More listed names than a rule remembers come in any order, and no beginning gets stuck where few names are left."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from random import Random
from typing import Any, Final

import jsonschema
import pytest

from jan_serve.constraint.enforce import enforce
from jan_serve.core.constraint import JsonSchemaConstraint, PropertyOrder, Whitespace
from jan_serve.engine.constraint.uniqueness_executor import UniquenessExecutor
from tests.integration.engine.constraint.test_uniqueness_executor import (
    FACTORY,
    PIECES,
    allowed,
    cuts,
    left_by_grammar,
)

NAMES: Final = [
    "".join(letters) for length in (1, 2, 3, 4, 5) for letters in itertools.product("ab", repeat=length)
]
MANY: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {name: {"const": True} for name in [*NAMES[:46], "é", "ok"]},
    "additionalProperties": False,
}
ALL: Final = list(MANY["properties"])
SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "all optional": MANY,
    "some required": MANY | {"required": ["a", "ok", "bbb"]},
    "all required": MANY | {"required": ALL},
    "all but two at most": MANY | {"maxProperties": len(ALL) - 2},
    "all but two at least": MANY | {"required": ["ab"], "minProperties": len(ALL) - 2},
    "with names of a pattern": MANY | {"patternProperties": {"^(aaaaaaa|b{7}|x)$": {"const": True}}},
    "one that needs another": MANY | {"dependentRequired": {"ba": ["é"]}},
    "beside few names": {
        "anyOf": [
            MANY,
            {"properties": {"é": {"const": True}}, "type": "object", "additionalProperties": False},
        ]
    },
}


def names_of(schema: dict[str, Any]) -> list[str]:
    return [*ALL, "aaaaaaa", "bbbbbbb", "x"] if "patternProperties" in schema else ALL


def endings(schema: dict[str, Any], written: list[str]) -> Iterator[str]:
    """All valid objects that go on after these members."""
    validator: Any = jsonschema.Draft202012Validator(schema)
    left = [name for name in names_of(schema) if name not in written]
    for count in range(len(left) + 1):
        for more in itertools.permutations(left, count):
            value = dict.fromkeys([*written, *more], True)
            if validator.is_valid(value):
                yield json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_beginning_is_right_where_few_names_are_left(name: str) -> None:
    schema, random = SCHEMAS[name], Random(name)
    constraint = JsonSchemaConstraint(schema, Whitespace.COMPACT, PropertyOrder.ANY)
    start = FACTORY.create(enforce(constraint).compiled)
    assert isinstance(start, UniquenessExecutor)
    tokens = range(2, len(PIECES))
    for _ in range(2):
        written = random.sample(names_of(schema), len(names_of(schema)) - 3)
        texts = [text.encode() for text in endings(schema, written)]
        prefix = (
            len(json.dumps(dict.fromkeys(written, True), separators=(",", ":"), ensure_ascii=False).encode())
            - 1
        )
        beginnings = sorted({text[:end] for text in texts for end in range(prefix, len(text))})
        assert beginnings or name in ("beside few names", "all but two at most")
        for beginning in random.sample(beginnings, min(len(beginnings), 6)):
            executor = start.copy()
            for token in cuts(beginning, random):
                assert executor.allows(token), beginning
                executor.accept(token)
            expected = [
                token for token in tokens if any(t.startswith(beginning + PIECES[token]) for t in texts)
            ]
            assert [token for token in tokens if executor.allows(token)] == expected, beginning
            assert allowed(executor) == [token for token in left_by_grammar(executor) if token in expected]


def test_others_of_an_open_object_come_anywhere() -> None:
    schema = MANY | {"additionalProperties": {"type": "integer"}, "required": ["ok", "é"]}
    start = FACTORY.create(enforce(JsonSchemaConstraint(schema, None, PropertyOrder.ANY)).compiled)
    random = Random(3)
    for _ in range(4):
        members: list[tuple[str, Any]] = [
            (name, True) for name in random.sample(ALL, 40) if name not in ("ok", "é")
        ]
        members += [("ok", True), ("é", True), ("other", 1), ("o", 2)]
        random.shuffle(members)
        for some, valid in (
            (members, True),
            ([*members, random.choice(members)], False),
            (members[:-1], members[-1][0] not in ("ok", "é")),
        ):
            text = (
                "{"
                + ", ".join(
                    f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(value)}" for name, value in some
                )
                + "}"
            )
            executor = start.copy()
            taken = True
            for token in cuts(text.encode(), random):
                taken = taken and executor.allows(token)
                if taken:
                    executor.accept(token)
            assert (taken and executor.is_complete) is valid, text
