"""Calls in the form of the model's template: what is allowed, what is read and what a history shows are the same."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jan_serve.chat.call_form import in_form, learned_form, probe_history, texts_of, with_texts
from jan_serve.chat.chat_format import ChatFormat, StreamParser
from jan_serve.chat.detect import FORMATS, detect_format, knows_tools, writes_calls
from jan_serve.chat.formats.elements import QWEN3_CODER
from jan_serve.chat.formats.messages import GPT_OSS
from jan_serve.chat.template import rendered_chat
from jan_serve.chat.template_traits import traits_of
from jan_serve.chat.tools_as_text import write_calls
from jan_serve.core.events import ToolCallDelta
from jan_serve.core.messages import CallForm, FunctionCall, Message, ToolCall
from jan_serve.core.request import ChatPrompt, RenderRequest
from jan_serve.engine.constraint.grammar_executor import GrammarExecutor
from jan_serve.engine.constraint.grammar_factory import GrammarFactory
from tests.support.calls.call_grammars import call_grammars
from tests.support.gguf.byte_vocabulary import EOS, FIRST_BYTE, byte_vocabulary, pieces_of
from tests.unit.chat.chat_sessions import TOOLS
from tests.unit.chat.formats.real_templates import RealTemplate, templates

TURNS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "one": [("read", {"path": "a.txt", "lines": [1, 2], "deep": True})],
    "two": [("read", {"path": "a.txt", "deep": False}), ("read", {"path": "b.txt"})],
    "none": [("now", {})],
    "line breaks": [("read", {"path": "\n  first\n second\n"})],
    "null": [("read", {"path": "", "deep": None})],
}
"""Calls of a turn. Nothing ends a name or a value but its mark."""

WITH_CALLS = [each for each in templates() if knows_tools(each.source) and writes_calls(each.source)]
real = pytest.mark.parametrize("template", WITH_CALLS, ids=lambda template: template.name)


def rendered(template: RealTemplate, messages: tuple[Message, ...], opens: bool) -> tuple[str, ChatFormat]:
    request = RenderRequest(
        prompt=ChatPrompt(messages=messages, tools=TOOLS, opens_answer=opens, continues_answer=False),
        template=template.source,
        bos_token="<s>",
        eos_token="</s>",
        now=datetime(2026, 1, 2, tzinfo=UTC),
    )
    chat = rendered_chat(request)
    return chat.text, in_form(detect_format(template.source), chat.form)


def shown_calls(template: RealTemplate, calls: list[tuple[str, dict[str, Any]]]) -> tuple[str, ChatFormat]:
    """The calls as the template shows them, and the format in its form."""
    turn = tuple(
        ToolCall(f"callid00{number}", FunctionCall(name, json.dumps(arguments)))
        for number, (name, arguments) in enumerate(calls)
    )
    results = (
        Message(role="tool", content="OUTCOME", tool_call_id=call.id, name=call.function.name)
        for call in turn
    )
    ask = Message(role="user", content="Hi.")
    text, chat_format = rendered(template, (ask, Message(role="assistant", tool_calls=turn), *results), False)
    layout = chat_format.calls
    opening, last = layout.opening.lstrip("\n"), layout.call[-1]
    head = layout.call[0] if isinstance(layout.call[0], str) else calls[0][0]
    first = (opening + head).lstrip("\n")
    closing = ((last if isinstance(last, str) else "}") + layout.closing).rstrip()
    end = text.rindex(closing, 0, text.index("OUTCOME")) + len(closing)
    start = end
    for _ in calls[: None if opening == "" else 1]:
        start = text.rindex(first, 0, start)
    return text[start:end], chat_format


OWN_FORMS = {
    "CohereForAI-c4ai-command-r-plus-tool_use": "JSON is indented by what is around it too",
    "MiniMax-M3": "arrays as elements, which the grammar writes as JSON",
    "openbmb-MiniCPM3-4B": "no space after the comma between arguments",
}
"""Templates that show what the grammar does not write."""


@real
@pytest.mark.parametrize("kind", TURNS)
def test_calls_that_the_template_shows_are_read_and_allowed(template: RealTemplate, kind: str) -> None:
    traits, calls = traits_of(template.source), TURNS[kind]
    if len(calls) > 1 and not (traits.parallel_calls and detect_format(template.source).calls.parallel):
        return
    text, chat_format = shown_calls(template, calls)
    drops_null = template.name == "MiniMax-M3"
    deltas = list(StreamParser(chat_format, lambda name, own: name, tools=TOOLS).feed(text))
    read = [[delta.name, ""] for delta in deltas if isinstance(delta, ToolCallDelta) and delta.id is not None]
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            read[delta.call_index][1] = f"{read[delta.call_index][1]}{delta.arguments}"
    expected = [
        (name, {key: value for key, value in arguments.items() if value is not None or not drops_null})
        for name, arguments in calls
    ]
    assert [(name, json.loads(str(arguments))) for name, arguments in read] == expected, text
    assert template.name in OWN_FORMS or is_allowed(chat_format, text), text


LOSSY = {
    "CohereForAI-c4ai-command-r-plus-tool_use": "line separators within JSON are indented",
    "LFM2.5-2": "texts between single quotes hold none",
    "LFM2.5-8B-A1B": "texts between single quotes hold none",
}
"""Templates whose notation cannot hold every text."""


@pytest.mark.parametrize(
    "template", [each for each in WITH_CALLS if each.name not in LOSSY], ids=lambda template: template.name
)
@settings(max_examples=int(os.environ.get("TEST_DRAWS", "4")), deadline=None, derandomize=True)
@given(st.text("ab \n\t'\"\\{}[]<>&:=,/1\u00e9\u2028", max_size=12))
@example("\n  line\n")
@example("True")
@example(" lead and trail ")
def test_any_text_is_read_as_the_template_shows_it(template: RealTemplate, value: str) -> None:
    text, chat_format = shown_calls(template, [("read", {"path": value})])
    parser = StreamParser(chat_format, lambda name, own: name, tools=TOOLS)
    deltas = [*parser.feed(text), *parser.finish()]
    arguments = "".join(delta.arguments for delta in deltas if isinstance(delta, ToolCallDelta))
    assert json.loads(arguments) == {"path": value}, text
    assert template.name in OWN_FORMS or is_allowed(chat_format, text), text


def test_a_form_changes_white_space_only() -> None:
    texts = list(texts_of(QWEN3_CODER.calls))
    assert with_texts(QWEN3_CODER.calls, texts) == QWEN3_CODER.calls
    texts[1] = "<other>\n<function="
    with pytest.raises(ValueError, match="not those of the layout"):
        in_form(QWEN3_CODER, CallForm(texts=tuple(texts)))
    with pytest.raises(ValueError, match="no layout 2"):
        in_form(GPT_OSS, CallForm(layout=2))


FACTORY = GrammarFactory(byte_vocabulary(pieces_of()))
GRAMMARS: dict[tuple[str, CallForm | None], GrammarExecutor] = {}


def is_allowed(chat_format: ChatFormat, text: str) -> bool:
    key = (chat_format.name, chat_format.form)
    if key not in GRAMMARS:
        GRAMMARS[key] = FACTORY.create(call_grammars(chat_format, TOOLS, parallel=True).whole)
    executor = GRAMMARS[key].copy()
    for byte in text.encode():
        if not executor.allows(FIRST_BYTE + byte):
            return False
        executor.accept(FIRST_BYTE + byte)
    return executor.allows(EOS)


@pytest.mark.parametrize("chat_format", FORMATS, ids=lambda each: each.name)
def test_a_text_with_halves_of_calls_takes_no_time(chat_format: ChatFormat) -> None:
    calls = write_calls(chat_format.calls, probe_history(parallel=True)[1].tool_calls)
    started = time.process_time()
    assert learned_form(chat_format, calls[: len(calls) // 2] * 100, parallel=True) is None
    learned_form(chat_format, calls.replace("\n", " " * 300)[:-1], parallel=True)
    assert time.process_time() - started < 1
