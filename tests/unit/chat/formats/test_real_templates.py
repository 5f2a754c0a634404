"""Templates of published models: format detection, and parsing of the answers that they write in a history."""

from __future__ import annotations

import itertools
import json
from typing import Any, Final

import jinja2
import pytest

from jan_serve.chat.detect import detect_format, knows_tools, writes_calls
from jan_serve.chat.template_traits import traits_of
from jan_serve.chat.tools_as_text import with_tools_as_text
from jan_serve.core.messages import FunctionCall, Message, ToolCall
from tests.support.tables import table
from tests.unit.chat.formats.answers import TOOLS, parse_everywhere
from tests.unit.chat.formats.real_templates import (
    RealTemplate,
    WrittenAnswer,
    answer_of,
    render,
    templates,
)

FORMATS_FOUND: Final[dict[str, str]] = table(__file__, "formats found")
KNOW_NO_TOOLS: Final[list[str]] = table(__file__, "know no tools")
"""These do not show tools to the model."""
WRITE_NO_CALLS: Final[list[str]] = table(__file__, "write no calls")
"""These do not write a history's calls."""

CALLS: Final[list[tuple[str, dict[str, Any]]]] = [
    ("get_weather", {"city": 'Oslo "N"', "days": 2}),
    ("add", {"values": [1, 2.5], "opts": {"k": True}}),
]
TEXT: Final = "Let me look."
REASONING: Final = "I think so."

ALL: Final = list(templates())


def every(found: list[RealTemplate]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("template", found, ids=[template.name for template in found])


@every(ALL)
def test_the_format_of_each_template(template: RealTemplate) -> None:
    assert detect_format(template.source).name == FORMATS_FOUND[template.name]
    assert knows_tools(template.source) == (template.name not in KNOW_NO_TOOLS)
    assert writes_calls(template.source) == (template.name not in WRITE_NO_CALLS)


def _written(template: RealTemplate) -> WrittenAnswer:
    """The first way of putting a turn with calls that the template takes, from the fullest to the barest."""
    contents: list[dict[str, Any]] = [{"content": TEXT}, {"content": ""}, {"content": None}, {}]
    thoughts: list[dict[str, Any]] = [{"reasoning_content": REASONING, "thinking": REASONING}, {}]
    failures: list[str] = []
    for count, as_text, thought, with_results, content in itertools.product(
        (2, 1), (False, True), thoughts, (True, False), contents
    ):
        calls = [
            ToolCall(f"calls{at:04}", FunctionCall(name, "")) for at, (name, _) in enumerate(CALLS[:count])
        ]
        turn = {
            "role": "assistant",
            "tool_calls": [_listed(call, as_text) for call in calls],
            **thought,
            **content,
        }
        results = [
            {"role": "tool", "tool_call_id": call.id, "name": call.function.name, "content": "RESULT"}
            for call in calls
        ]
        try:
            answer = answer_of(template, turn, results if with_results else [], list(TOOLS))
        except (jinja2.TemplateError, TypeError) as error:
            failures.append(str(error))
            continue
        if calls[0].function.name in answer.text:
            return answer
    raise AssertionError(f"the template wrote no call: {failures}")


def _listed(call: ToolCall, as_text: bool) -> dict[str, Any]:
    arguments = dict(CALLS)[call.function.name]
    function = {"name": call.function.name, "arguments": json.dumps(arguments) if as_text else arguments}
    return {"id": call.id, "type": "function", "function": function}


@pytest.mark.drawn
@every([template for template in ALL if template.name not in WRITE_NO_CALLS])
def test_an_answer_written_by_the_template_is_parsed(template: RealTemplate) -> None:
    """Some templates write one call only, some drop text or thought of a turn with calls: what they write is read."""
    chat_format = detect_format(template.source)
    written = _written(template)
    answer = parse_everywhere(
        chat_format, written.text, starts_in_thought=chat_format.prompt_opens_thought(written.prompt)
    )
    assert answer.values() == [call for call in CALLS if call[0] in written.text]
    assert answer.text == (TEXT if TEXT in written.text and answer.reasoning != TEXT else "")
    assert answer.reasoning in (REASONING if REASONING in written.text else "", TEXT)


@pytest.mark.drawn
@every([template for template in ALL if template.name in WRITE_NO_CALLS])
def test_tools_become_text_if_the_template_does_not_show_them(template: RealTemplate) -> None:
    chat_format = detect_format(template.source)
    history = (
        Message(role="user", content="Q"),
        Message(
            role="assistant",
            content=TEXT,
            tool_calls=tuple(
                ToolCall(f"calls{at:04}", FunctionCall(name, "{}")) for at, (name, _) in enumerate(CALLS)
            ),
        ),
        Message(role="tool", content="RESULT 1", tool_call_id="calls0000"),
        Message(role="tool", content="RESULT 2", tool_call_id="calls0001"),
    )
    folded = with_tools_as_text(history, TOOLS, chat_format, calls_too=True)
    assert [message.role for message in folded] == ["system", "user", "assistant", "user"]
    plain: list[dict[str, Any]] = [{"role": message.role, "content": message.content} for message in folded]
    if template.name == "google-gemma-2-2b-it":  # it takes no system message
        plain = [{"role": "user", "content": f"{plain[0]['content']}\n\nQ"}, *plain[2:]]
    if traits_of(template.source).list_content:
        plain = [{**turn, "content": [{"type": "text", "text": turn["content"]}]} for turn in plain]
    text = render(template, plain, [], ask=True)
    assert all(part in text for part in ("get_weather", "RESULT 1", "RESULT 2", TEXT))
    turn = str(folded[2].content)
    answer = parse_everywhere(chat_format, turn)
    assert (answer.text, [name for name, _ in answer.values()]) == (TEXT, [name for name, _ in CALLS])
