"""Texts with a memory: every valid one can be written however it is cut into tokens, no other, and none gets stuck."""

from __future__ import annotations

import itertools
import json
from random import Random
from typing import Any

import jsonschema
import numpy as np
import pytest

from jan_serve.constraint.enforce import enforce
from jan_serve.core.constraint import JsonSchemaConstraint, Whitespace
from jan_serve.engine.constraint.grammar_executor import GrammarExecutor
from jan_serve.engine.constraint.grammar_factory import GrammarFactory
from jan_serve.engine.constraint.uniqueness_executor import UniquenessExecutor
from jan_serve.errors import EngineFailure
from tests.support.drawn_grid import some
from tests.support.gguf.byte_vocabulary import byte_vocabulary, pieces_of
from tests.support.tables import table

_CHARACTERS = [c.encode() for c in '\n\t !",-.0123456789:[]abcdefghijklmnopqrstuvwxyz{}\\_']
_BYTES = [bytes((byte,)) for byte in range(0x80, 0x100)]
_LONGER = (
    *"|".join(
        (
            '""|","|", "|"a"|"a","|","a","|"a","b"|,"a"|, "a"|["|["a","a"|[1,1|[1,2,1|1,1,|,1,|,2,|12|1.0|.0|10',
            'true|,true|true,|false|null,null|ab|"b|","b|],|],"|":["|["a"|\\u00|\\n|\\"|\\""|é|"é"|é"|😀|"]|"],|1]|a]',
            ' "| 1| 1,|":|{"|ok|}|{}|[]|{},|[],[]|{},{}|[[],[]|, {}|]]|"}|"},{"|1}|1},|": []|],[[',
        )
    ).split("|"),
    ',\n  "',
    "\n  ",
    '\n  "a',
)
PIECES = pieces_of(_LONGER, single=(*_CHARACTERS, *_BYTES))


FACTORY = GrammarFactory(byte_vocabulary(PIECES))
LOGITS = np.zeros(len(PIECES), np.float32)

# Each with the values that items are drawn from.
SCHEMAS: dict[str, tuple[Any, list[Any]]] = table(__file__, "schemas")


def executor_of(schema: Any, whitespace: Whitespace | None = None) -> UniquenessExecutor:
    executor = FACTORY.create(enforce(JsonSchemaConstraint(schema, whitespace)).compiled)
    assert isinstance(executor, UniquenessExecutor)
    return executor


def array_of(name: str) -> Any:
    return {"type": "array", "uniqueItems": True, **SCHEMAS[name][0]}


def allowed(executor: UniquenessExecutor) -> list[int]:
    return [int(token) for token in np.nonzero(np.isfinite(executor.mask(LOGITS)))[0]]


def left_by_grammar(executor: UniquenessExecutor) -> list[int]:
    """Where text is forced, the mask is its first token and not every cut of it."""
    return [int(token) for token in np.nonzero(np.isfinite(GrammarExecutor.mask(executor, LOGITS)))[0]]


def walk(executor: UniquenessExecutor, random: Random, most: int, check_every: int = 17) -> str | None:
    """A text of random tokens; None where it is not finished after `most`."""
    text = b""
    for step in range(most):
        left = allowed(executor)
        assert left, f"nothing may follow {text!r}"
        if step % check_every == 0:
            assert left == [token for token in left_by_grammar(executor) if executor.allows(token)], text
        closing = [token for token in left if token == 1 or PIECES[token][:1] in b'"],}']
        likely = closing if closing and random.random() < 0.6 else left
        token = random.choice(likely)
        if token == 1:
            return text.decode()
        executor.accept(token)
        text += PIECES[token]
        if executor.is_complete:
            return text.decode()
    return None


@pytest.mark.drawn
@pytest.mark.parametrize("name", SCHEMAS)
def test_what_is_written_is_valid_and_never_stuck(name: str) -> None:
    random = Random(name)
    schema = array_of(name)
    validator: Any = jsonschema.Draft202012Validator(schema)
    finished, walks = 0, some(range(40), 12)
    for _ in walks:
        text = walk(executor_of(schema), random, 120)
        if text is not None:
            finished += 1
            assert validator.is_valid(json.loads(text)), text
    assert finished > len(walks) / 4


def cuts(text: bytes, random: Random) -> list[int]:
    """The text as tokens, cut at random."""
    tokens: list[int] = []
    while text:
        fitting = [token for token, piece in enumerate(PIECES) if token > 1 and text.startswith(piece)]
        tokens.append(random.choice(fitting))
        text = text[len(PIECES[tokens[-1]]) :]
    return tokens


def takes(executor: UniquenessExecutor, text: str, random: Random) -> bool:
    """Whether the executor takes the whole text, by its masks and by single tokens alike."""
    for token in cuts(text.encode(), random):
        allows = executor.allows(token)
        by_grammar = token in left_by_grammar(executor)
        assert (allows and by_grammar) == (token in allowed(executor)), (text, PIECES[token])
        if not allows:
            return False
        executor.accept(token)
    return executor.is_complete or executor.allows(1)


@pytest.mark.drawn
@pytest.mark.parametrize("name", [name for name, (_, values) in SCHEMAS.items() if values])
@pytest.mark.parametrize(
    "layout", [{}, {"separators": (",", ":")}, {"indent": 2}], ids=["spaced", "compact", "lines"]
)
def test_exactly_the_arrays_of_different_items_are_taken(name: str, layout: dict[str, Any]) -> None:
    """Against a brute-force checker: arrays of two to four items, with and without repetition."""
    random = Random(name)
    schema, values = array_of(name), SCHEMAS[name][1]
    validator: Any = jsonschema.Draft202012Validator(schema)
    lengths = range(max(schema.get("minItems", 2), 2), min(len(values), schema.get("maxItems", 4)) + 1)
    start = executor_of(schema)
    for count in some([*lengths, *lengths, *lengths][:12], 4, name):
        for _ in range(4):
            items = random.choices(values, k=count) if random.random() < 0.5 else random.sample(values, count)
            text = json.dumps(items, ensure_ascii=False, **layout)
            assert takes(start.copy(), text, random) == validator.is_valid(items), text


@pytest.mark.parametrize(("first", "again"), [("1", "1.0"), ("2.0", "2"), ("0", "0.0"), ("1.5", "1.5")])
def test_numbers_are_compared_by_value(first: str, again: str) -> None:
    random = Random(1)
    start = executor_of(array_of("numbers"))
    assert takes(start.copy(), f"[{first}, 7]", random)
    assert not takes(start.copy(), f"[{first}, {again}]", random)


@pytest.mark.parametrize(
    ("first", "again"),
    [("100", "1e2"), ("0", "-0"), ("0.0", "0e5"), ("2.50", "2.5"), ("1.5e1", "15"), ("-1e-2", "-0.01")],
)
def test_numbers_within_items_are_compared_by_value(first: str, again: str) -> None:
    random = Random(1)
    start = executor_of(array_of("anything"))
    assert takes(start.copy(), f"[[{first}], [7]]", random)
    assert not takes(start.copy(), f"[[{first}], [{again}]]", random)


def test_a_number_within_an_item_may_be_long() -> None:
    """Longer than `int` reads."""
    random, long = Random(1), "9" * 5_000
    items = {"type": "array", "items": {"type": "integer", "multipleOf": 3}}
    start = executor_of({"type": "array", "items": items, "uniqueItems": True}, Whitespace.COMPACT)
    for token in cuts(f"[[{long}],[".encode(), random):
        start.accept(token)
    assert takes(start.copy(), f"{long[1:]}]]", random)
    assert not takes(start, f"{long}]]", random)


PLACES: dict[str, Any] = {
    "type": "object",
    "properties": {
        "a": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        "b": {"type": "array", "items": {"type": "string"}},
        "c": {"type": "array", "items": {"$ref": "#"}},
        "d": {"type": "string"},
    },
    "additionalProperties": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
}


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        ({"a": ["x", "y"], "b": ["x", "x"]}, True),
        ({"a": ["x", "x"]}, False),
        ({"c": [{"a": ["x"]}, {"a": ["x"]}]}, True),
        ({"c": [{"b": ["x", "x"]}, {"a": ["x", "x"]}]}, False),
        ({"d": '["a","a"]\\', "other": [1, 2]}, True),
        ({"other": [1, 1]}, False),
        ({"c": [{"\\": [3, 4, 3]}]}, False),
        ({"a": [], "other": [], '"': []}, True),
    ],
)
def test_arrays_are_known_by_their_place(value: Any, valid: bool) -> None:
    random = Random(2)
    layouts: list[dict[str, Any]] = [{}, {"separators": (",", ":")}, {"indent": 4}]
    for layout in layouts:
        text = json.dumps(value, **layout)
        assert takes(executor_of(PLACES), text, random) == valid, text


BY_PATTERN: dict[str, Any] = {
    "type": "object",
    "properties": {"ua": {"type": "array"}},
    "patternProperties": {
        "^u": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        "^n": {"type": "array", "items": {"type": "string"}},
        "n$": {"minItems": 1},
    },
}


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        ({"u": ["x", "y"], "n": ["x", "x"], "z": [1, 1]}, True),
        ({"n": ["x", "x"], "u": ["x", "x"]}, False),
        ({"nn": ["x", "x"], "un": ["x", "x"]}, False),
        ({"ua": ["x", "x"]}, False),
        ({"n\\u": ["x", "x"], "zu": ["x", "x"]}, True),
    ],
)
def test_arrays_are_known_by_the_pattern_of_their_name(value: Any, valid: bool) -> None:
    validator: Any = jsonschema.Draft202012Validator(BY_PATTERN)
    assert validator.is_valid(value) is valid
    assert takes(executor_of(BY_PATTERN), json.dumps(value), Random(3)) is valid


TEXTS: dict[str, Any] = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
BESIDE: dict[str, tuple[Any, list[Any], list[Any]]] = table(__file__, "beside")


@pytest.mark.parametrize("name", BESIDE)
def test_sets_beside_other_arrays(name: str) -> None:
    """Arrays that may stand in place of a set have different items too; nothing gets stuck."""
    schema, taken, refused = BESIDE[name]
    start, random, validator = executor_of(schema), Random(name), jsonschema.Draft202012Validator(schema)
    check: Any = validator
    for value, valid in [*((value, True) for value in taken), *((value, False) for value in refused)]:
        assert check.is_valid(value) is valid
        assert takes(start.copy(), json.dumps(value), random) is valid, value
    for _ in range(12):
        text = walk(start.copy(), random, 80)
        assert text is None or check.is_valid(json.loads(text)), text


def test_copies_remember_apart() -> None:
    one = executor_of(array_of("strings"))
    for token in cuts(b'["a",', Random(3)):
        one.accept(token)
    other = one.copy()
    for token in cuts(b'"b",', Random(3)):
        other.accept(token)
    assert takes(one.copy(), '"b"]', Random(4)) and not takes(one, '"a"]', Random(4))
    assert not takes(other, '"b"]', Random(4))


def test_an_item_that_repeats_is_not_accepted_in_silence() -> None:
    executor = executor_of(array_of("strings"))
    for token in cuts(b'["a","a', Random(6)):
        executor.accept(token)
    with pytest.raises(EngineFailure):
        executor.accept(PIECES.index(b'"'))


@pytest.mark.drawn
def test_every_beginning_of_a_small_set_is_right() -> None:
    """All texts of arrays over three words, character by character."""
    words = ["a", "ab", "b", "ba", "bb", "aa", "aaa", "c", "ca"]
    schema = {"items": {"enum": words}, "type": "array", "uniqueItems": True, "maxItems": 3}
    texts = [
        json.dumps(items, separators=(",", ":")).encode()
        for count in (1, 2, 3)
        for items in itertools.permutations(words, count)
    ]
    beginnings = {text[:end] for text in texts for end in range(len(text))}
    start = executor_of({**schema, "minItems": 1}, Whitespace.COMPACT)
    random = Random(5)
    for beginning in some(random.sample(sorted(beginnings), 300), 100):
        executor = start.copy()
        for token in cuts(beginning, random):
            assert executor.allows(token)
            executor.accept(token)
        expected = [
            token
            for token, piece in enumerate(PIECES)
            if token > 1 and any(text.startswith(beginning + piece) for text in texts)
        ]
        tokens = range(2, len(PIECES))
        assert [token for token in tokens if executor.allows(token)] == expected, beginning
        assert allowed(executor) == [token for token in left_by_grammar(executor) if token in expected]
