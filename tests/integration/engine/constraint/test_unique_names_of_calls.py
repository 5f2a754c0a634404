"""In calls with JSON arguments, no object has a name twice and unique items differ, however the text is cut."""

from __future__ import annotations

import json
from functools import cache
from random import Random

import numpy as np
import pytest

from jan_serve.chat.call_layout import JsonArguments
from jan_serve.chat.chat_format import ChatFormat
from jan_serve.chat.detect import FORMATS
from jan_serve.chat.tools_as_text import write_calls
from jan_serve.core.constraint import CallGrammars, CompiledGrammar
from jan_serve.core.messages import FunctionCall, Tool, ToolCall
from jan_serve.engine.constraint.grammar_executor import GrammarExecutor
from jan_serve.engine.constraint.grammar_factory import GrammarFactory
from jan_serve.engine.constraint.uniqueness_executor import UniquenessExecutor
from tests.support.calls.call_grammars import call_grammars
from tests.support.gguf.byte_vocabulary import byte_vocabulary, pieces_of

JSON = [form for form in FORMATS if isinstance(form.calls.arguments, JsonArguments)]
CLOSED = {"additionalProperties": False}
WORDS = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
LETTERS = {"type": "object", "patternProperties": {"^[ab]$": {"type": "integer"}}, **CLOSED}
TOOLS = [
    Tool(name="note", parameters={"type": "object", "properties": {"text": {"type": "string"}}}),
    Tool(name="keynote", parameters={"type": "object", "properties": {"words": WORDS}, **CLOSED}),
    Tool(name="letters", parameters=LETTERS),
]
_LONGER = (
    '{"',
    '": ',
    '"a"',
    '{"a":',
    ', "a"',
    '","a","',
    '"a": 1, "a"',
    "}}",
    '"}}',
    '{"name": "',
    '", "arguments": {"',
    "</tool_call>",
    "note",
)
PIECES = pieces_of(_LONGER)
LOGITS = np.zeros(len(PIECES), np.float32)


FACTORY = GrammarFactory(byte_vocabulary(PIECES))


@cache
def grammars(name: str) -> CallGrammars:
    (form,) = [form for form in JSON if form.name == name]
    return call_grammars(form, TOOLS, parallel=True)


def written(form: ChatFormat, *calls: tuple[str, str]) -> str:
    """The calls of tools with arguments in one text, which may have a name twice."""
    made = write_calls(
        form.calls,
        [
            ToolCall(
                id="abcdefghi", function=FunctionCall(name=name, arguments=json.dumps({f"@{number}": 1}))
            )
            for number, (name, _) in enumerate(calls)
        ],
    )
    for number, (_, arguments) in enumerate(calls):
        made = made.replace(json.dumps({f"@{number}": 1}), arguments)
    return made


def fault(grammar: CompiledGrammar, text: str, random: Random) -> str | None:
    """What is rejected first, by its masks and by single tokens alike; None if the whole text is taken."""
    executor = FACTORY.create(grammar)
    assert isinstance(executor, UniquenessExecutor)
    data = text.encode()
    at = 0
    while at < len(data):
        fitting = [token for token, piece in enumerate(PIECES) if token > 1 and data.startswith(piece, at)]
        token = random.choice(fitting)
        allows, mask = executor.allows(token), executor.mask(LOGITS)
        by_grammar = np.isfinite(GrammarExecutor.mask(executor, LOGITS)[token])
        assert (allows and by_grammar) == np.isfinite(mask[token]), (text, at)
        assert np.isfinite(mask).any(), f"nothing may follow {data[:at]!r}"
        if not allows:
            return data[at:].decode()
        executor.accept(token)
        at += len(PIECES[token])
    return None


@pytest.mark.parametrize("form", JSON, ids=lambda form: form.name)
@pytest.mark.parametrize(
    ("tool", "arguments", "valid"),
    [
        ("note", '{"a": 1, "text": "x"}', True),
        ("note", '{"a": 1, "a": 2}', False),
        ("note", '{"text": "x", "a": 1, "text": "y"}', False),
        ("note", '{"x": [{"a": {}, "b": {"a": 1}}]}', True),
        ("note", '{"x": [{"a": {}, "a": {}}]}', False),
        ("note", '{"text": "{\\"a\\": 1, \\"a\\": 2}"}', True),
        ("keynote", '{"words": ["a", "b"]}', True),
        ("keynote", '{"words": ["a", "b", "a"]}', False),
        ("letters", '{"b": 1, "a": 2}', True),
        ("letters", '{"b": 1, "b": 2}', False),
        ("letters", "{}", True),
    ],
)
def test_names_and_unique_items_of_arguments_differ(
    form: ChatFormat, tool: str, arguments: str, valid: bool
) -> None:
    """From the start of an answer and after each trigger; the next call may have the same names again."""
    random = Random(f"{form.name} {arguments}")
    calls = grammars(form.name)
    assert calls.warnings == ()
    again = [(tool, arguments)] * (2 if valid and form.calls.parallel else 1)
    text = written(form, *again)
    assert (fault(calls.whole, text, random) is None) is valid
    for trigger, grammar in zip(form.calls.triggers, calls.triggered, strict=True):
        # One that the layout does not have replaces all text before the name.
        rest = text.partition(trigger)[2] or text[text.index(tool) :]
        if not form.calls.closing:
            rest = rest[: rest.index(arguments) + len(arguments)]
        assert (fault(grammar, rest, random) is None) is valid
