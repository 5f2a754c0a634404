"""Masks forbid no token that a text goes on with, and allow none that no text does: the grammar's tree is the oracle,
and jsonschema of what is compared beside it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jan_serve.core.constraint import PropertyOrder
from jan_serve.engine.llama import backend
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.errors import JanServeError
from tests.conformance.mask_counts import Found, Vocabulary, own, positions
from tests.conformance.suites import SHARED, Case
from tests.support.drawn_grid import some
from tests.support.gguf.byte_vocabulary import byte_vocabulary, pieces_of
from tests.support.gguf.vocabulary_files import KINDS, VocabularyFile, write_vocabulary
from tests.unit.constraint.json_schema.assertion_schemas import ASSERTION_SCHEMAS
from tests.unit.constraint.json_schema.schemas import SCHEMAS
from tests.unit.constraint.sampling import Sampler

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module", autouse=True)
def started() -> None:
    backend.start()


_PARTS = (
    '"',
    '":',
    '": "',
    '","',
    '", "',
    "{",
    "}",
    "}}",
    "[",
    "]",
    "],",
    ", ",
    ": ",
    "\n",
    "  ",
    "\t",
    "\\",
    "\\u00",
)
_WORDS = (
    "a",
    "b",
    "c",
    "ab",
    "b7",
    "x1",
    "true",
    "false",
    "null",
    "0",
    "1",
    "00",
    ".5",
    "-3",
    "e+",
    "é",
    "😀",
    "日本",
)


@lru_cache(maxsize=1)
def vocabulary() -> Vocabulary:
    draw = Random(58)
    longer = {"".join(draw.choices((*_PARTS, *_WORDS), k=draw.randint(1, 4))) for _ in range(800)}
    half = ("日".encode()[:2], "😀".encode()[2:], "é".encode()[1:] + b'"')
    return Vocabulary(byte_vocabulary((*pieces_of(sorted(longer)), *half)))


def wrong(schema: Any, order: PropertyOrder, seed: int, tokens: Vocabulary | None = None) -> list[Found]:
    """What the masks get wrong along a text of a schema."""
    draw, tokens = Random(seed), tokens or vocabulary()
    case = Case("", schema, ())
    masks, oracle = own(tokens, order)(case, draw)
    text = Sampler(oracle.grammar, depth=6).text(draw).encode()[:400]
    found = positions(tokens, masks, oracle, text, 12, draw)
    return [each for each in found if each is not None and (each.forbidden or each.allowed)]


@settings(max_examples=100)
@given(st.one_of(SCHEMAS, ASSERTION_SCHEMAS), st.sampled_from(PropertyOrder), st.integers(0, 2**32))
def test_no_mask_is_wrong(schema: Any, order: PropertyOrder, seed: int) -> None:
    try:
        found = wrong(schema, order, seed)
    except JanServeError:
        return  # refused
    assert found == []


def _closed(properties: Any, *required: str) -> Any:
    members = {"type": "object", "properties": properties, "required": list(required)}
    return {**members, "additionalProperties": False}


_TEXT: Any = {"type": "string"}
_SETS: Any = {"type": "array", "uniqueItems": True}


@pytest.mark.drawn
@pytest.mark.parametrize("order", [PropertyOrder.SCHEMA, PropertyOrder.ANY])
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": True, "ab": {"type": "string"}}, "required": ["ab"]},
        {
            "type": "object",
            "patternProperties": {"^[ab]{1,2}$": {"type": "integer"}},
            "additionalProperties": False,
        },
        {**_SETS, "items": {"type": "string"}, "minItems": 3},
        {**_SETS, "items": {"type": "string", "pattern": "^[ab]{1,2}$"}, "minItems": 3},
        {**_SETS, "items": {"type": "integer", "minimum": 0, "maximum": 11}, "minItems": 3},
        {**_SETS, "items": {"type": "number"}, "minItems": 3},
        {**_SETS, "items": {"type": "object", "properties": {"a": {"enum": [1, 2]}}}, "minItems": 3},
        {**_SETS, "items": _closed({"a": {"type": "string"}}, "a"), "minItems": 2},
        {**_SETS, "items": _closed({"a": {"type": "string"}}), "minItems": 3},
        {**_SETS, "items": _closed({"a": {"type": "integer"}, "b": {"enum": [1, 2]}}, "b"), "minItems": 3},
        {
            **_SETS,
            "items": _closed({"a": {"enum": ["a", "ab"]}, "b": {"type": ["string", "null"]}}),
            "minItems": 2,
        },
        {**_SETS, "items": _closed({"a": {"type": "array", "items": {"enum": [1]}}, "x1": _TEXT}, "a", "x1")},
        {
            **_SETS,
            "items": _closed({"a": {"enum": [1, 2]}, "b": {"type": "array", "items": {"enum": [1, 2]}}}, "b"),
        },
        {
            **_SETS,
            "items": _closed({"a": {"type": "object"}, "b": {"type": ["null", "object"]}}),
            "minItems": 2,
        },
        {**_SETS, "items": _closed({"b": {"pattern": "^a*$"}, "c": {"type": "number", "minimum": 0}}, "c")},
        {**_SETS, "items": {"type": "array", "items": {"enum": ["a", 1, None]}}, "minItems": 3},
    ],
)
def test_no_mask_is_wrong_where_names_or_items_must_differ(schema: Any, order: PropertyOrder) -> None:
    for seed in some(range(3), 1, repr(schema)):
        assert wrong(schema, order, seed) == []


PUBLISHED = sorted((SHARED / "data" / "vocab").glob("*.gguf"))
FORCED: Any = {
    "type": "object",
    "properties": {
        "hello world": {"const": "Hello, 字"},
        "b": {"enum": ["end", " end"]},
        "c": {"type": "string"},
    },
    "required": ["hello world", "b", "c"],
    "additionalProperties": False,
}


@pytest.mark.drawn
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.model == "llama"], ids=str)
def test_vocabularies_that_write_a_space_before_a_text_have_exact_masks(
    tmp_path: Path, kind: VocabularyFile
) -> None:
    write_vocabulary(tmp_path / "vocabulary.gguf", kind)
    check_vocabulary(tmp_path / "vocabulary.gguf")


@pytest.mark.drawn
@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_published_vocabularies_have_exact_masks(path: Path) -> None:
    check_vocabulary(path)


def check_vocabulary(path: Path) -> None:
    model = LlamaModel(str(path), vocab_only=True)
    tokens = Vocabulary(model.vocab)
    for seed in some(range(6), 2):
        assert wrong(FORCED, PropertyOrder.SCHEMA, seed, tokens) == []
