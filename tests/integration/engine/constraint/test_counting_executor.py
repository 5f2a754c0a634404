"""Raw texts of calls with a bound: every text up to it can be written however it is cut into tokens, and none above."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import numpy as np
import pytest

from jan_serve.chat.call_layout import JsonArguments, PythonArguments
from jan_serve.chat.chat_format import ChatFormat
from jan_serve.chat.detect import FORMATS
from jan_serve.chat.tools_as_text import write_calls
from jan_serve.constraint import trial
from jan_serve.constraint.enforce import enforce
from jan_serve.core.constraint import JsonSchemaConstraint, TextBounds
from jan_serve.core.messages import FunctionCall, Tool, ToolCall
from jan_serve.engine.constraint.grammar_executor import (
    CountingExecutor,
    CountState,
    TextCounter,
    TokenSizes,
    characters,
)
from jan_serve.engine.constraint.grammar_factory import GrammarFactory
from jan_serve.engine.constraint.token_tables import TokenSearch
from jan_serve.errors import EngineFailure, GrammarTooComplex, UnsupportedSchema
from jan_serve.generation.constraint.call_frame import call_marks, starts
from jan_serve.lark_matcher import made_matcher
from tests.conformance.uniqueness_oracle import UniquenessOracle
from tests.support.calls.call_grammars import call_grammars
from tests.support.drawn_grid import drawn_grid
from tests.support.gguf.byte_vocabulary import byte_vocabulary, pieces_of

MOST = 5_000
RAW = [f for f in FORMATS if not isinstance(f.calls.arguments, JsonArguments | PythonArguments)]
BY_NAME = {form.name: form for form in RAW}
_LONGER = (
    "a" * 8,
    "a" * 64,
    "é" * 3,
    "a</",
    "<<",
    "</par",
    "</parameter>",
    "a</parameter>",
    "eter>",
    "a\n</",
    "😀",
)
PIECES = pieces_of(_LONGER)


def tokens_of(text: str) -> list[int]:
    """One for each byte."""
    return [2 + byte for byte in text.encode()]


def written(form: ChatFormat, *calls: tuple[str, dict[str, Any]]) -> str:
    return write_calls(
        form.calls,
        [
            ToolCall(id="c1", function=FunctionCall(name=name, arguments=json.dumps(arguments)))
            for name, arguments in calls
        ],
    )


def test_the_sizes_of_tokens_are_their_characters() -> None:
    pieces = [b"", "aé😀".encode(), b"\xa9", "é".encode()[:1], b"a" * 64, b""]
    sizes = TokenSizes(pieces, TokenSearch(pieces))
    assert sizes.characters.tolist() == list(map(characters, pieces))
    assert sizes.with_any([b"aa", b"\xa9"]).tolist() == [False, True, True, False, True, False]
    assert not sizes.with_any([]).any()


def is_counted(counter: TextCounter, *parts: bytes) -> CountState | None:
    state: CountState | None = CountState()
    for part in parts:
        state = None if state is None else counter.written(state, part)
    return state


@drawn_grid(name=list(BY_NAME), word=["a", "é", "<", "</", "a\n", '"'])
def test_only_the_text_of_its_tool_is_counted(name: str, word: str) -> None:
    """At every split, from the start of an answer and from each trigger."""
    form = BY_NAME[name]
    marks, calls = call_marks(form.calls), form.calls
    other = {"script": word * 20, "note": f"{word}script: <function=Flow>"}
    text = word * 3
    called = written(
        form, ("Flows", other), ("Flow", {"note": word * 9, "n": 5, "script": text}), ("Read", other)
    )
    begun = [("", 0)]
    for trigger, start in zip(calls.triggers, starts(calls), strict=True):
        begun.append((start, called.index(trigger) + len(trigger)))
    for start, at in begun:
        data = called[at:].encode()
        for bound, fits in ((len(text), True), (len(text) - 1, False)):
            counter = TextCounter(TextBounds(marks, {"Flow": {"script": bound}}, start))
            bytewise = is_counted(counter, *(data[i : i + 1] for i in range(len(data))))
            assert (bytewise is not None) is fits
            for split in range(0, len(data), 1 if fits else 7):
                assert (is_counted(counter, data[:split], data[split:]) is not None) is fits, data[:split]


def executor(form: ChatFormat) -> CountingExecutor:
    schema = {"type": "object", "properties": {"script": {"type": "string", "maxLength": MOST}, "n": {}}}
    tools = [Tool(name="Flow", parameters=schema), Tool(name="Read", parameters=schema | {"required": ["n"]})]
    grammars = call_grammars(form, tools, parallel=True)
    assert grammars.warnings == ()
    made = GrammarFactory(byte_vocabulary(PIECES)).create(grammars.whole)
    assert isinstance(made, CountingExecutor)
    return made


@pytest.mark.parametrize("name", ["qwen3-coder", "glm-4.5"])
def test_a_text_at_its_bound_can_only_end(name: str) -> None:
    """mask and allows agree on every token; a stop that begins and is none counts."""
    form = BY_NAME[name]
    begin, end = written(form, ("Flow", {"script": "@"})).split("@")
    made = executor(form)
    for token in tokens_of(begin):
        made.accept(token)
    wide = PIECES.index(b"a" * 64)
    while made.allows(wide):
        assert made.mask(np.zeros(len(PIECES), np.float32))[wide] == 0
        made.accept(wide)
    for token in (PIECES.index(b"</par"), *tokens_of("é<a")):
        assert_alike(made)
        made.accept(token)
    assert not made.allows(2 + ord("a"))
    begun = made.copy()
    for token in (PIECES.index(b"</par"), *tokens_of("ameter>" if name == "qwen3-coder" else "")):
        if begun.allows(token):
            begun.accept(token)
            assert not begun.allows(2 + ord("x"))
            assert_alike(begun)
    with pytest.raises(EngineFailure, match="longer than its bound"):
        made.copy().accept(2 + ord("a"))
    for token in tokens_of(end):
        assert_alike(made)
        made.accept(token)
    assert made.allows(1)


def assert_alike(made: CountingExecutor) -> None:
    out = made.mask(np.zeros(len(PIECES), np.float32))
    allowed = [token for token in range(2, len(PIECES)) if out[token] == 0]
    assert allowed, "no token is left"
    assert allowed == [token for token in range(2, len(PIECES)) if made.allows(token)]


PATTERNS = (
    *(
        r"^(?:\S+\s+){0,99}\S+$",
        r"^(\S+\s+){0,20}\S+$",
        r"^(?:\S+\s+)*\S+$",
        r"^(?:[^\s,]+, ?){1,30}[^\s,]+$",
    ),
    *(r"^(?=.*[0-9])(?=.*[a-z]).*$", r"^(?=.*[0-9])(?=.*[a-z])(?=.*[A-Z]).{8,}$", r"^(?:\w+ ){0,9}\w+$"),
    *(r"^(?!\s*$).+", r"^\S(.*\S)?$", r"^(?:(?:\S+\s+){0,9}\S+\n)*$", r"^(?:[\s\S]{1,40}\n){0,20}$"),
)
LENGTHS: tuple[dict[str, int], ...] = (
    {},
    {"maxLength": 100},
    {"maxLength": 500},
    {"maxLength": 1_000},
    {"maxLength": 5_000},
    {"maxLength": 10_000},
    {"minLength": 10, "maxLength": 2_000},
    {"minLength": 200},
)


def _text(draw: random.Random, length: int) -> str:
    """A text of words."""
    words = ("a", "B7", "word", "zwölf", "x,", "1,", "-", "longer")
    text = ""
    while len(text) < length:
        text += draw.choice(words) + draw.choice((" ", " ", "  ", "\n", ", "))
    return text[:length]


@drawn_grid(pattern=PATTERNS, length=LENGTHS)
def test_a_length_beside_a_pattern_never_ends_an_answer(pattern: str, length: dict[str, int]) -> None:
    """Neither where the text begins nor further on; a schema that would is refused when it is compiled."""
    schema = {"type": "string", "pattern": pattern, **length}
    try:
        compiled = enforce(JsonSchemaConstraint({"type": "object", "properties": {"a": schema}})).compiled
    except (GrammarTooComplex, UnsupportedSchema) as error:
        assert error.pointer == "/properties/a"
        return
    matcher = made_matcher(trial.tokenizer(), compiled.lark)
    for token in b'{"a": "':
        assert matcher.consume_token(token)
    draw = random.Random(7)
    for _ in range(40):
        found = trial.drawn_token(matcher, draw)
        assert not matcher.is_error(), matcher.get_error()
        if found is None or not matcher.consume_token(found):
            break
    assert not matcher.is_error(), matcher.get_error()


@drawn_grid(pattern=PATTERNS[:-2], most=[70, 300, 700])
def test_a_length_beside_a_pattern_is_judged_right(pattern: str, most: int) -> None:
    compiled = enforce(
        JsonSchemaConstraint({"type": "string", "pattern": pattern, "minLength": 3, "maxLength": most})
    ).compiled
    oracle = UniquenessOracle()
    assert compiled.uniqueness is not None
    judge = oracle.compile(compiled.lark, compiled.uniqueness)
    draw = random.Random(most)
    # As ECMA-262 has it, where `$` is the end only.
    expected = re.compile(pattern.replace("$", r"\Z"), re.ASCII)
    texts = [_text(draw, length) for length in (0, 2, 3, 9, 40, most - 1, most, most + 1) for _ in range(6)]
    texts += [text.strip() for text in texts]
    for text in texts:
        valid = 3 <= len(text) <= most and expected.search(text) is not None
        written = text.replace("\n", "\\n")
        assert oracle.accepts(judge, f'"{written}"') is valid, text
