"""Prompts rendered from messages by a model's template."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from jan_serve.chat.template import render_prompt
from jan_serve.core.messages import (
    FunctionCall,
    Message,
    Tool,
    ToolCall,
)
from jan_serve.core.request import ChatPrompt
from jan_serve.core.template import TemplateFacts
from models.recipe.chat_template import CHAT_TEMPLATE

USER = (Message(role="user", content="Hi"),)


def render(source: str | None, messages: tuple[Message, ...] = USER, **prompt: Any) -> str:
    facts = TemplateFacts(source=source, bos_token="<s>", eos_token="</s>")
    return render_prompt(
        ChatPrompt(messages=messages, **prompt), facts, lambda: datetime(2026, 3, 4, 5, 6, tzinfo=UTC)
    )


def test_a_model_without_a_template_gets_chatml() -> None:
    messages = (Message(role="system", content="Be brief."), *USER)
    expected = (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert render(None, messages) == expected


def test_the_built_in_template_renders_a_call_and_its_result() -> None:
    call = ToolCall("call_1", FunctionCall("add", '{"a":1}'))
    messages = (*USER, Message(role="assistant", tool_calls=(call,)), Message(role="tool", content="2"))
    text = render(CHAT_TEMPLATE, messages, tools=(Tool(name="add", parameters={"type": "object"}),))
    assert '<tool_call>{"name": "add", "arguments": {"a":1}}</tool_call>' in text
    assert text.endswith("<|im_start|>tool\n2<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", "<s>Hi</s>"),
        ("{{ {'a': 'é<b>\\'', 'c': [1, none]} | tojson }}", '{"a": "é<b>\'", "c": [1, null]}'),
        ("{{ [1] | tojson(indent=1) }}", "[\n 1\n]"),
        ("{{ {'b': 1, 'a': 2} | tojson(separators=(',', ':'), sort_keys=true) }}", '{"a":2,"b":1}'),
        ("{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "012"),
        ("{% for i in range(4) %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "023"),
        ("{% generation %}{{ 'x' }}{% endgeneration %}", "x"),
        ("  {% if true %}\n  a\n  {% endif %}\n", "  a\n"),
        ("{{ strftime_now('%d %b %Y') }}", "04 Mar 2026"),
        ("{% if tools is none %}none{% endif %}", "none"),
        ("{% set ns = namespace(n=1) %}{% set ns.n = 2 %}{{ ns.n }}", "2"),
        ("{{ messages[0].tool_calls is defined }}", "False"),
        ("{{ tool_choice }}", "auto"),
        ("{% if add_generation_prompt %}go{% endif %}", "go"),
    ],
)
def test_templates_find_the_helpers_of_hugging_face(source: str, expected: str) -> None:
    assert render(source) == expected


def test_template_kwargs_reach_the_template_but_replace_nothing() -> None:
    source = "{{ enable_thinking }} {{ messages[0].content }}"
    assert render(source, template_kwargs={"enable_thinking": True, "messages": []}) == "True Hi"


CHATML_WITHOUT_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
SYSTEM = Message(role="system", content="Be kind.")


def test_a_system_message_goes_to_the_user_where_there_is_no_such_role() -> None:
    assert render(CHATML_WITHOUT_SYSTEM, (SYSTEM, *USER)) == "<user>Be kind.\n\nHi<assistant>"
    assert render(CHATML_WITHOUT_SYSTEM, (SYSTEM,)) == "<user>Be kind.<assistant>"


def test_content_becomes_parts_where_the_template_wants_them() -> None:
    source = "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}"
    assert render(source, (SYSTEM, *USER)) == "Be kind.Hi"


@pytest.mark.parametrize(
    ("message", "end"),
    [
        (Message(role="assistant", content="Once upon"), "<|im_start|>assistant\nOnce upon"),
        (
            Message(role="assistant", content="So", reasoning_content="Hm"),
            "<|im_start|>assistant\n<think>\nHm\n</think>\n\nSo",
        ),
    ],
    ids=["text", "thought and text"],
)
def test_the_answer_goes_on_from_a_last_message_of_the_assistant(message: Message, end: str) -> None:
    assert render(CHAT_TEMPLATE, (*USER, message)).endswith(end)


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("{{ c.arguments }}", '{"a":1}'),
        ("{{ c.arguments | tojson }}", '{"a": 1}'),
        ("{% for k, v in c.arguments | items %}{{ k }}={{ v }}{% endfor %}", "a=1"),
        (
            "{% if c.arguments is string %}{{ c.arguments }}{% else %}{{ c.arguments | tojson }}{% endif %}",
            '{"a":1}',
        ),
    ],
    ids=["pasted", "as JSON", "one by one", "either"],
)
def test_arguments_come_as_the_template_takes_them(source: str, shown: str) -> None:
    template = (
        "{% for m in messages %}{{ m.content }}{% for t in m.tool_calls or [] %}{% set c = t.function %}"
        + source
        + "{% endfor %}{% endfor %}{% if tools %}{% endif %}"
    )
    call = ToolCall("call_1", FunctionCall("add", '{"a":1}'))
    assert (
        render(template, (*USER, Message(role="assistant", content="", tool_calls=(call,)))) == "Hi" + shown
    )


ONE_CALL = (
    "{{ tools | length if tools else '' }}{% for m in messages %}"
    "{% if m.tool_calls %}({{ m.tool_calls[0].function.arguments }})"
    "{% elif m.role == 'tool' %}[{{ m.content }}]"
    "{% else %}<{{ m.role }} {{ m.content }}>{% endif %}{% endfor %}"
)


def test_results_stay_in_their_turn_where_ids_are_counted_anew_in_each() -> None:
    """With a template that shows one call of a turn."""

    def turn(number: int) -> tuple[Message, ...]:
        ids = ("call_0", "call_1")
        calls = tuple(
            ToolCall(call_id, FunctionCall("add", f'{{"a": {number}{i}}}')) for i, call_id in enumerate(ids)
        )
        results = (
            Message(role="tool", content=f"R{number}{i}", tool_call_id=ids[i]) for i in (1, 0)
        )  # in another order
        return (Message(role="assistant", tool_calls=calls), *results)

    tools = (Tool(name="add", parameters={"type": "object"}),)
    text = render(ONE_CALL, (*USER, *turn(1), *turn(2), Message(role="user", content="So?")), tools=tools)
    shown = text.replace('{"a": ', "").replace("{'a': ", "").replace("}", "")
    assert shown == "1<user Hi>(10)[R10](11)[R11](20)[R20](21)[R21]<user So?>"
