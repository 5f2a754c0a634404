from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from jan_serve.chat.template import render_prompt, template_message, template_tool_choice, template_tools
from jan_serve.chat.template_traits import TemplateTraits
from jan_serve.core.messages import (
    FunctionCall,
    ImagePart,
    Message,
    TextPart,
    Tool,
    ToolCall,
    ToolChoice,
)
from jan_serve.core.request import ChatPrompt, RenderRequest
from jan_serve.errors import TemplateError, UnsupportedContent
from models.recipe.chat_template import CHAT_TEMPLATE

USER = (Message(role="user", content="Hi"),)


def render(source: str | None, messages: tuple[Message, ...] = USER, **prompt: Any) -> str:
    return render_prompt(
        RenderRequest(
            prompt=ChatPrompt(messages=messages, **prompt),
            template=source,
            bos_token="<s>",
            eos_token="</s>",
            now=datetime(2026, 3, 4, 5, 6, tzinfo=UTC),
        )
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


WRITES_EFFORT = "{{ reasoning_effort }} {{ messages[-1].content }}"
TAKES_TWO = (
    "{% if reasoning_effort is defined and reasoning_effort not in ['none', 'high'] %}"
    "{{ raise_exception('no') }}{% endif %}"
)
NAMES_MAX = "{% if reasoning_effort == 'max' %}{% endif %}"


@pytest.mark.parametrize(
    ("source", "effort", "shown"),
    [
        *((WRITES_EFFORT, word, word) for word in ("none", "low", "medium", "high", "ultra")),
        (WRITES_EFFORT, "minimal", "low"),
        (WRITES_EFFORT, "xhigh", "high"),
        (WRITES_EFFORT, "max", "high"),
        (NAMES_MAX + WRITES_EFFORT, "max", "max"),
        (NAMES_MAX + WRITES_EFFORT, "xhigh", "high"),
        *((TAKES_TWO + WRITES_EFFORT, word, "high") for word in ("minimal", "low", "medium", "high", "max")),
        (TAKES_TWO + WRITES_EFFORT, "none", "none"),
        (WRITES_EFFORT, 3, "3"),
    ],
)
def test_an_effort_is_a_word_that_the_template_takes(source: str, effort: Any, shown: str) -> None:
    assert render(source, template_kwargs={"reasoning_effort": effort}) == f"{shown} Hi"


def test_a_template_that_takes_no_effort_says_so() -> None:
    source = "{% if reasoning_effort is defined %}{{ raise_exception('no efforts') }}{% endif %}hi"
    with pytest.raises(TemplateError, match="no efforts"):
        render(source, template_kwargs={"reasoning_effort": "low"})


CHATML_WITHOUT_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
SYSTEM = Message(role="system", content="Be kind.")


def test_a_system_message_goes_to_the_user_where_there_is_no_such_role() -> None:
    assert render(CHATML_WITHOUT_SYSTEM, (SYSTEM, *USER)) == "<user>Be kind.\n\nHi<assistant>"
    assert render(CHATML_WITHOUT_SYSTEM, (SYSTEM,)) == "<user>Be kind.<assistant>"


TURNS = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content or '' }}{% for t in m.tool_calls or [] %} {{ t.function.name }}"
    "{{ t.function.arguments | tojson }}{% endfor %}{% endfor %}"
    "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}"
)
SYSTEM_FIRST = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning.') }}{% endif %}{% endfor %}" + TURNS
)
ALTERNATE = (
    "{% set first = 1 if messages[0].role == 'system' else 0 %}{% set ns = namespace(n=0) %}"
    "{% for m in messages[first:] %}{% if m.role != 'tool' and not m.tool_calls %}"
    "{% if (m.role == 'user') != (ns.n % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% set ns.n = ns.n + 1 %}{% endif %}{% endfor %}" + TURNS
)
GEMMA = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}"
)


def chat(*turns: str) -> tuple[Message, ...]:
    """Messages as `role: text`; a call as `call: name`, and its result as `tool: text`."""
    messages: list[Message] = []
    for turn in turns:
        role, text = turn.split(": ", 1)
        if role == "call":
            calls = (ToolCall(text, FunctionCall(text, "{}")),)
            messages.append(Message(role="assistant", tool_calls=calls))
        else:
            messages.append(Message(role=role, content=text))
    return tuple(messages)


@pytest.mark.parametrize(
    ("source", "turns", "expected"),
    [
        (SYSTEM_FIRST, ["system: A", "system: B", "user: Hi"], "<system>A\n\nB<user>Hi"),
        (SYSTEM_FIRST, ["user: Hi", "system: B"], "<system>B<user>Hi"),
        (
            SYSTEM_FIRST,
            ["system: A", "user: Hi", "assistant: So", "system: B", "user: Go", "user: On"],
            "<system>A<user>Hi<assistant>So<user><system-reminder>\nB\n</system-reminder>\n\nGo<user>On",
        ),
        (
            SYSTEM_FIRST,
            ["user: Hi", "call: add", "tool: 2", "system: A", "system: B"],
            "<user>Hi<assistant> add{}<tool>2"
            "<user><system-reminder>\nA\n</system-reminder>\n\n<system-reminder>\nB\n</system-reminder>",
        ),
        (SYSTEM_FIRST, ["user: Hi", "user: You"], "<user>Hi<user>You"),
        (ALTERNATE, ["system: A", "system: B", "user: Hi"], "<system>A\n\nB<user>Hi"),
        (ALTERNATE, ["user: Hi", "user: You"], "<user>Hi\n\nYou"),
        (
            ALTERNATE,
            ["user: Hi", "assistant: So", "call: add", "tool: 2", "assistant: 2", "user: On", "system: B"],
            "<user>Hi<assistant>So add{}<tool>2<assistant>2"
            "<user>On\n\n<system-reminder>\nB\n</system-reminder>",
        ),
        (
            ALTERNATE,
            ["user: Hi", "call: add", "tool: 2", "user: On"],
            "<user>Hi<assistant> add{}<tool>2\n\nOn",
        ),
        (ALTERNATE, ["assistant: So", "user: Hi"], "<user><assistant>So<user>Hi"),
        (GEMMA, ["system: A", "assistant: So", "user: Hi"], "<user>A<assistant>So<user>Hi"),
        (GEMMA, ["system: A", "system: B", "user: Hi", "user: You"], "<user>A\n\nB\n\nHi\n\nYou"),
        (GEMMA, ["user: Hi", "system: B"], "<user>Hi\n\nB"),
    ],
    ids=[
        "two at the start",
        "after the user",
        "after an answer",
        "after a result",
        "turns it accepts",
        "alternating: two at the start",
        "alternating: two of the user",
        "alternating: text before a call",
        "alternating: the user after a result",
        "alternating: an answer first",
        "no system: an answer first",
        "no system: two of each",
        "no system: after the user",
    ],
)
def test_turns_become_those_that_a_strict_template_accepts(
    source: str, turns: list[str], expected: str
) -> None:
    tools = (Tool(name="add"),) if "call: add" in turns else ()
    assert render(source, chat(*turns), tools=tools).removesuffix("[add]") == expected


def test_a_template_that_shows_all_turns_gets_them_unchanged() -> None:
    turns = ["system: A", "system: B", "user: Hi", "user: You", "assistant: So", "system: C", "user: On"]
    expected = "<system>A<system>B<user>Hi<user>You<assistant>So<system>C<user>On"
    assert render(TURNS, chat(*turns)) == expected


def test_an_answer_in_two_parts_goes_on_where_roles_alternate() -> None:
    turns = chat("user: Hi", "assistant: Once", "assistant: upon")
    assert render(ALTERNATE, turns) == "<user>HiOnce\n\nupon"


def test_results_as_text_join_the_users_turn_where_roles_alternate() -> None:
    text = render(GEMMA, chat("user: Hi", "call: add", "tool: 2", "user: So?"))
    assert text.endswith("<user><tool_response>\n2\n</tool_response>\n\nSo?")


def test_a_text_comes_before_a_call_whose_arguments_come_before_its_name() -> None:
    template = (
        "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% for m in messages %}<{{ m.role }}>"
        '{% for t in m.tool_calls or [] %}<call>{"arguments": {{ t.function.arguments | tojson }}, '
        '"name": "{{ t.function.name }}"}{% else %}{{ m.content }}{% endfor %}{% endfor %}'
    )

    def turn(text: str) -> tuple[Message, Message]:
        call = ToolCall(f"call-{text}", FunctionCall("add", f'{{"a": "{text}"}}'))
        answer = Message(role="assistant", content=text and f"{text}!", tool_calls=(call,))
        return answer, Message(role="tool", content="2", tool_call_id=call.id)

    text = render(template, (*USER, *turn("x"), *turn(""), *turn("y")), tools=(Tool(name="add"),))
    assert text == (
        'add<user>Hi<assistant>x!\n<call>{"arguments": {"a": "x"}, "name": "add"}<tool>2'
        '<assistant><call>{"arguments": {"a": ""}, "name": "add"}<tool>2'
        '<assistant>y!\n<call>{"arguments": {"a": "y"}, "name": "add"}<tool>2'
    )


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
        + "{% endfor %}{% endfor %}{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}"
    )
    call = ToolCall("call_1", FunctionCall("add", '{"a":1}'))
    assert (
        render(template, (*USER, Message(role="assistant", content="", tool_calls=(call,)))) == "Hi" + shown
    )


ONE_CALL = (
    "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% for m in messages %}"
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
    assert shown == "add<user Hi>(10)[R10](11)[R11](20)[R20](21)[R21]<user So?>"


USUAL = TemplateTraits()


def value_of(message: Message, traits: TemplateTraits = USUAL) -> dict[str, Any]:
    value = template_message(message, 0, traits, "thinking")
    return value


def call(arguments: str) -> Message:
    return Message(role="assistant", tool_calls=(ToolCall("call_1", FunctionCall("add", arguments)),))


MESSAGES: dict[str, tuple[Message, TemplateTraits, dict[str, Any]]] = {
    "text": (Message(role="user", content="Hi"), USUAL, {"role": "user", "content": "Hi"}),
    "parts are joined as they are": (
        Message(role="user", content=(TextPart("a "), TextPart("b"))),
        USUAL,
        {"role": "user", "content": "a b"},
    ),
    "no content": (Message(role="assistant"), USUAL, {"role": "assistant", "content": ""}),
    "a list of parts": (
        Message(role="user", content="Hi"),
        TemplateTraits(list_content=True),
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ),
    "no text is an empty part": (
        Message(role="user", content=""),
        TemplateTraits(list_content=True),
        {"role": "user", "content": [{"type": "text", "text": ""}]},
    ),
    "null without calls stays text": (
        Message(role="assistant"),
        TemplateTraits(null_content=True),
        {"role": "assistant", "content": ""},
    ),
    "a thought": (
        Message(role="assistant", content="4", reasoning_content="2+2"),
        USUAL,
        {"role": "assistant", "content": "4", "thinking": "2+2"},
    ),
    "a result": (
        Message(role="tool", content="4", name="add", tool_call_id="call_1"),
        USUAL,
        {"role": "tool", "content": "4", "name": "add", "tool_call_id": "call_1"},
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message(name: str) -> None:
    message, traits, expected = MESSAGES[name]
    assert value_of(message, traits) == expected


@pytest.mark.parametrize(
    ("arguments", "expected", "text"),
    [
        ('{"a":1}', {"a": 1}, '{"a":1}'),
        ("", {}, "{}"),
        ("[1]", {}, "{}"),
        ('{"a": 1, "b', {"a": 1}, '{"a": 1}'),
    ],
    ids=["object", "none", "array", "cut"],
)
def test_arguments_are_an_object_or_its_text(arguments: str, expected: Any, text: str) -> None:
    function = value_of(call(arguments))["tool_calls"][0]["function"]
    assert function == {"name": "add", "arguments": expected}
    as_text = value_of(call(arguments), TemplateTraits(object_arguments=False))["tool_calls"][0]
    assert as_text == {
        "id": "call_1",
        "type": "function",
        "function": {"name": "add", "arguments": text},
    }


def test_a_turn_with_calls_has_null_content_where_the_template_wants_it() -> None:
    assert value_of(call("{}"), TemplateTraits(null_content=True))["content"] is None


def test_an_image_is_rejected_and_never_fetched() -> None:
    parts = (TextPart("look"), ImagePart("file:///etc/passwd"))
    with pytest.raises(UnsupportedContent, match=r"messages\[1\]") as caught:
        template_message(Message(role="user", content=parts), 1, USUAL, "thinking")
    assert caught.value.param == "messages"


def test_plain_tools_have_what_templates_look_for() -> None:
    parameters: dict[str, Any] = {
        "properties": {"a": {"type": ["NULL", "INTEGER"]}, "b": True},
        "required": None,
    }
    tools = (Tool(name="add", parameters=parameters), Tool(name="now", parameters={}, strict=True))
    assert template_tools(tools) == [
        {"type": "function", "function": {"name": "add", "parameters": parameters}},
        {"type": "function", "function": {"name": "now", "parameters": {}, "strict": True}},
    ]
    plain = template_tools(tools, plain=True)
    assert plain is not None
    assert plain[0]["function"] == {
        "name": "add",
        "description": "",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer", "description": ""}, "b": {"description": ""}},
            "additionalProperties": {},
        },
    }
    assert plain[1]["function"]["parameters"]["properties"] == {}
    assert parameters["required"] is None, "the request's tool is not changed"
    assert template_tools(()) is None


def test_a_tool_choice_is_a_word_or_an_object() -> None:
    assert template_tool_choice(ToolChoice("required")) == "required"
    assert template_tool_choice(ToolChoice("named", "add")) == {
        "type": "function",
        "function": {"name": "add"},
    }
