"""Strings have no endless run of one escape, and none of them gets stuck."""

from __future__ import annotations

import itertools
import json
import re
from random import Random
from typing import Any

import pytest

from jan_serve.text.uniqueness.words import MOST, NO_RUN, EscapeRun
from tests.integration.engine.constraint.test_uniqueness_executor import (
    PIECES,
    allowed,
    cuts,
    executor_of,
    takes,
)

TEXTS = (
    "a",
    "\\n",
    "\\n\\n",
    "\\nb\\n\\n",
    "\\t\\n",
    "\\\\",
    '\\"\\"',
    "\\u00e9\\u00e9\\u00e9",
    "é\\u00e9\\n",
    "",
)
CLOSED: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "additionalProperties": False,
}


def _run_of(text: str) -> EscapeRun:
    """By a regular expression, for whole escapes."""
    found = re.search(r"((\\(?:u.{4}|[^u]))\2*)$", "".join(re.findall(r"\\(?:u.{4}|[^u])|[^\\]", text)))
    while found is not None and found.start() and not _is_whole(text[: found.start()]):
        found = re.compile(r"((\\(?:u.{4}|[^u]))\2*)$").search(text, found.start() + 1)
    return NO_RUN if found is None else EscapeRun(found[2].encode(), len(found[1]) // len(found[2]))


def _is_whole(text: str) -> bool:
    return re.fullmatch(r"(?:\\(?:u.{4}|[^u])|[^\\])*", text) is not None


@pytest.mark.parametrize("text", TEXTS)
def test_runs_are_counted_at_every_split(text: str) -> None:
    data = text.encode()
    for first, second in itertools.combinations_with_replacement(range(len(data) + 1), 2):
        run = NO_RUN.written(data[:first]).written(data[first:second]).written(data[second:])
        assert run == _run_of(text), (first, second)


@pytest.mark.parametrize(
    ("schema", "before"),
    [
        ({"type": "string"}, '"'),
        (CLOSED, '{"a": "'),
        ({"type": "array", "items": {"type": "string"}}, '["x", "'),
        ({"type": "object"}, '{"'),
        ({"type": "string", "minLength": 100}, '"'),
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, '["'),
    ],
)
@pytest.mark.parametrize("escape", ["\\n", "\\\\", '\\"', "\\u0001"])
def test_a_run_ends_where_anything_else_may_follow(schema: Any, before: str, escape: str) -> None:
    random = Random(escape)
    executor = executor_of(schema)
    for token in cuts((before + MOST * escape).encode(), random):
        assert executor.allows(token)
        executor.accept(token)
    left = allowed(executor)
    assert left
    assert not any(PIECES[token].startswith(escape.encode()) for token in left)
    for token in range(2, len(PIECES)):
        assert not PIECES[token].startswith(escape.encode()) or not executor.allows(token)
    rest = "b" * 100 + '"'
    for token in cuts(rest.encode(), random):
        assert executor.allows(token)
        executor.accept(token)


@pytest.mark.parametrize(
    "schema",
    [
        {"const": "\n" * (MOST + 8)},
        {"enum": ["\n" * (MOST + 8), "x"]},
        {
            "type": "object",
            "properties": {"\n" * (MOST + 8): {"type": "null"}},
            "additionalProperties": False,
        },
    ],
)
def test_a_run_that_the_schema_asks_for_is_written(schema: Any) -> None:
    value = "\n" * (MOST + 8)
    text = json.dumps({value: None} if "properties" in schema else value)
    assert takes(executor_of(schema), text, Random(1))


@pytest.mark.parametrize(
    ("schema", "longest"),
    [
        ({"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2}, MOST),
        ({"type": "string", "pattern": "^\\n*$"}, 2 * MOST),
        ({"type": "string", "pattern": f"^\\n{{{MOST + 8}}}$"}, MOST + 8),
    ],
)
def test_a_model_that_would_write_nothing_else_comes_to_an_end(schema: Any, longest: int) -> None:
    executor = executor_of(schema)
    wanted = [PIECES.index(piece) for piece in (b"\\n", b'"', b"]")]
    text = b""
    for _ in range(400):
        left = allowed(executor)
        token = next((token for token in wanted if token in left), left[0])
        if token == 1:
            break
        executor.accept(token)
        text += PIECES[token]
        if executor.is_complete:
            break
    assert executor.is_complete or executor.allows(1)
    value = json.loads(text)
    assert all(
        set(item) == {"\n"} and len(item) <= longest
        for item in ([value] if isinstance(value, str) else value)
    )
