"""Terminals that make masks fast change none: that of the beginning of a free string, and that of a length."""

from __future__ import annotations

import json
import re
from itertools import product
from random import Random
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest

from jan_serve.chat.call_layout import NestedTagArguments
from jan_serve.chat.chat_format import ChatFormat
from jan_serve.chat.detect import FORMATS
from jan_serve.chat.tools_as_text import write_calls
from jan_serve.constraint.ast import Grammar, Literal, Mode, Translated, Until, sequence
from jan_serve.constraint.enforce import enforce, enforce_translation
from jan_serve.core.constraint import CompiledGrammar, JsonSchemaConstraint, Whitespace
from jan_serve.core.messages import FunctionCall, Tool, ToolCall
from jan_serve.engine.constraint.grammar_executor import GrammarExecutor
from jan_serve.engine.constraint.grammar_factory import GrammarFactory
from jan_serve.generation.constraint.tool_grammar import has_free_text
from tests.conformance.uniqueness_oracle import UniquenessOracle
from tests.integration.engine.constraint.test_uniqueness_executor import FACTORY, LOGITS, PIECES
from tests.support.calls.call_grammars import call_grammars
from tests.support.calls.catalogues import HARD
from tests.support.drawn_grid import drawn_grid, some
from tests.support.gguf.byte_vocabulary import EOS, FIRST_BYTE, byte_vocabulary, pieces_of
from tests.support.tables import table
from tests.unit.constraint.matching import belongs

STRINGS: dict[str, dict[str, Any]] = {
    "a word": {"pattern": "ok"},
    "a run": {"pattern": "[a-z]{3}"},
    "an end": {"pattern": "\\.(js|ts)$"},
    "two": {"allOf": [{"pattern": "a"}, {"pattern": "[0-9]"}]},
    "no end": {"not": {"pattern": "x$"}},
}


def executors(schema: dict[str, Any]) -> tuple[GrammarExecutor, GrammarExecutor]:
    """An executor of the grammar, and one of it without the terminals of beginnings."""
    grammar = enforce(JsonSchemaConstraint(schema, Whitespace.FLEXIBLE)).compiled
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
    counted = FACTORY.create(enforce(constraint).compiled)
    automaton = FACTORY.create(
        enforce(JsonSchemaConstraint(schema, Whitespace.FLEXIBLE), alone=True).compiled
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


ORACLE = UniquenessOracle()
# Each with texts that are invalid, and texts that are valid.
CASES: list[tuple[dict[str, Any], list[str], list[str]]] = table(__file__, "cases")


@pytest.mark.parametrize(("schema", "invalid", "valid"), CASES)
def test_what_is_excluded_is_excluded_in_every_spelling(
    schema: dict[str, Any], invalid: list[str], valid: list[str]
) -> None:
    compiled = enforce(JsonSchemaConstraint(schema)).compiled
    assert compiled.uniqueness is not None
    matcher = ORACLE.compile(compiled.lark, compiled.uniqueness)
    validator: Any = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    for texts, is_valid in ((invalid, False), (valid, True)):
        for text in texts:
            assert validator.is_valid(json.loads(text)) is is_valid, text
            assert ORACLE.accepts(matcher, text) is is_valid, text


CONTROL_PIECES = pieces_of()
RAW = [form for form in FORMATS if has_free_text(form)]


class Writer:
    """Writes texts with the control tokens of a vocabulary, and with one token for every other byte."""

    def __init__(self, *controls: str) -> None:
        vocab = byte_vocabulary(CONTROL_PIECES, controls)
        self._controls = {text: vocab.control_token(text) for text in controls}
        self._size = vocab.n_tokens
        self._factory = GrammarFactory(vocab)

    def made(self, grammar: CompiledGrammar) -> GrammarExecutor:
        return self._factory.create(grammar)

    def tokens(self, text: str) -> list[int]:
        tokens: list[int] = []
        words = "|".join(map(re.escape, self._controls))
        for part in re.split(f"({words})", text) if words else [text]:
            control = self._controls.get(part)
            tokens += [FIRST_BYTE + byte for byte in part.encode()] if control is None else [control]
        return tokens

    def takes(self, start: GrammarExecutor, tokens: list[int]) -> bool:
        made = start.copy()
        for token in tokens:
            allowed = made.mask(np.zeros(self._size, np.float32)) == 0
            assert allowed[FIRST_BYTE:].any(), "no token is left"
            assert allowed[token] == made.allows(token)
            if not allowed[token]:
                return False
            made.accept(token)
        return made.allows(EOS)


@drawn_grid(
    parts=[("", "<q>"), ("/", "<q>"), ("</", "q"), ("", "q")],
    bounds=[(0, None), (0, 0), (0, 2), (1, 1), (2, 3), (1, None)],
)
def test_text_until_a_control_token(parts: tuple[str, str], bounds: tuple[int, int | None]) -> None:
    """With the token, the stop ends with it; without, it is spelled. Both agree with the definition."""
    (before, special), (low, high) = parts, bounds
    stop = before + special
    grammar = Grammar({"root": sequence([Literal("."), Until(low, high, stop, special), Literal(".")])})
    printed = enforce_translation(lambda _: Translated(grammar), mode=Mode.ALONE).compiled
    has, lacks = Writer(special), Writer()
    with_token, spelled = has.made(printed), lacks.made(printed)
    for words in product(sorted({*before, "a", "<", special}), repeat=4):
        for text in (f".{''.join(words)}{end}." for end in ("", stop)):
            expected = belongs(grammar, text)
            assert lacks.takes(spelled, lacks.tokens(text)) is expected, text
            assert not has.takes(with_token, lacks.tokens(text)), "no text ends the stop"
            for inside, found, rest in (text.partition(stop), text.rpartition(stop)):
                if found:
                    written = [*lacks.tokens(inside + before), *has.tokens(special), *lacks.tokens(rest)]
                    assert has.takes(with_token, written) is expected, (inside, rest)


@pytest.mark.drawn
@pytest.mark.parametrize("form", RAW, ids=lambda form: form.name)
def test_calls_may_have_control_tokens(form: ChatFormat) -> None:
    """Whether the vocabulary has all control tokens of the format, the first one only, or none."""
    for name, hard in some(HARD.items(), 3, form.name):
        tools = [
            Tool(name="easy", parameters={"type": "object"}),
            Tool(name="hard", parameters=hard.parameters),
        ]
        grammar = call_grammars(form, tools, parallel=True).whole
        called = FunctionCall("hard", json.dumps(hard.valid, ensure_ascii=False))
        text = write_calls(form.calls, [ToolCall("call00000", called)])
        is_flat = not any(isinstance(value, list | dict) for value in hard.valid.values())
        if isinstance(form.calls.arguments, NestedTagArguments) and not is_flat:
            continue  # the grammar has JSON there
        for controls in (form.special_tokens, form.special_tokens[:1], ()):
            writer = Writer(*controls)
            assert writer.takes(writer.made(grammar), writer.tokens(text)), (name, text)
