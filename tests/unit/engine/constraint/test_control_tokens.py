"""Raw texts up to a control token: the same texts as where the vocabulary spells it, and no others."""

from __future__ import annotations

import json
import re
from itertools import product

import numpy as np
import pytest

from jan_serve.chat.call_layout import NestedTagArguments
from jan_serve.chat.call_writer import write_calls
from jan_serve.chat.chat_format import ChatFormat
from jan_serve.chat.detect import FORMATS
from jan_serve.constraint.ast import Grammar, Literal, Until, sequence
from jan_serve.constraint.enforce import enforce_translation
from jan_serve.constraint.mode import Mode
from jan_serve.constraint.translated import Translated
from jan_serve.core.constraint import CompiledGrammar
from jan_serve.core.messages import FunctionCall, Tool, ToolCall
from jan_serve.engine.constraint.grammar_executor import GrammarExecutor
from jan_serve.engine.constraint.grammar_factory import GrammarFactory
from jan_serve.generation.constraint.tool_grammar import has_free_text
from tests.support.byte_vocabulary import EOS, FIRST_BYTE, byte_vocabulary, pieces_of
from tests.support.call_grammars import call_grammars
from tests.support.catalogues import HARD
from tests.unit.constraint.matching import belongs

PIECES = pieces_of()
RAW = [form for form in FORMATS if has_free_text(form)]


class Writer:
    """Writes texts with the control tokens of a vocabulary, and with one token for every other byte."""

    def __init__(self, *controls: str) -> None:
        vocab = byte_vocabulary(PIECES, controls)
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


@pytest.mark.parametrize(("before", "special"), [("", "<q>"), ("/", "<q>"), ("</", "q"), ("", "q")])
@pytest.mark.parametrize(("low", "high"), [(0, None), (0, 0), (0, 2), (1, 1), (2, 3), (1, None)])
def test_text_until_a_control_token(before: str, special: str, low: int, high: int | None) -> None:
    """With the token, the stop ends with it; without, it is spelled. Both agree with the definition."""
    stop = before + special
    grammar = Grammar({"root": sequence([Literal("."), Until(low, high, stop, special), Literal(".")])})
    printed = enforce_translation(lambda _: Translated(grammar), mode=Mode.ALONE).compiled()
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


@pytest.mark.parametrize("form", RAW, ids=lambda form: form.name)
def test_calls_may_have_control_tokens(form: ChatFormat) -> None:
    """Whether the vocabulary has all control tokens of the format, the first one only, or none."""
    for name, hard in HARD.items():
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
