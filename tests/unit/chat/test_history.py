"""Histories in the form that templates show, over published templates and small ones."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings

from jan_serve.chat.call_arguments import object_arguments
from jan_serve.chat.call_layout import nine_characters
from jan_serve.chat.history import with_results_at_their_calls
from jan_serve.chat.template import render_prompt
from jan_serve.core.messages import FunctionCall, Message, Tool, ToolCall
from jan_serve.core.request import ChatPrompt, RenderRequest
from tests.unit.chat.drawn_histories import History, histories
from tests.unit.chat.formats.real_templates import RealTemplate, templates

PATH = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOLS = (
    Tool(name="read", description="Reads.", parameters=PATH),
    # A schema in which templates miss what they look for.
    Tool(
        name="other",
        parameters={
            "type": "object",
            "properties": {
                "object": {"type": "object"},
                "maybe": {"type": ["object", "null"]},
                "list": {"type": "array"},
                "any": {},
                "one": {"anyOf": [{"type": "string"}, {"type": "object"}]},
            },
        },
    ),
)

real = pytest.mark.parametrize("template", list(templates()), ids=lambda template: template.name)
draws = settings(
    max_examples=int(os.environ.get("TEST_DRAWS", "4")),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


def render(template: RealTemplate, messages: list[Message], tools: tuple[Tool, ...] = TOOLS) -> str:
    return render_prompt(
        RenderRequest(
            prompt=ChatPrompt(messages=tuple(messages), tools=tools),
            template=template.source,
            bos_token="<s>",
            eos_token="</s>",
            now=datetime(2026, 1, 2, tzinfo=UTC),
        )
    )


@real
@draws
@given(histories())
def test_every_order_of_roles_is_shown_without_loss(template: RealTemplate, history: History) -> None:
    for tools in (TOOLS, ()):
        text = render(template, history.messages, tools)
        assert [word for word in history.words if word not in text] == [], history.messages
        assert [word for word in history.words if text.count(word) > 1] == []
        for message in history.messages:
            if message.content and message.tool_calls:
                path = object_arguments(message.tool_calls[0].function.arguments)["path"]
                assert text.index(str(message.content)) < text.index(path)
        for turn, answers in enumerate(history.answers):
            results = [text.index(result) for _, result in answers]
            assert results == sorted(results)
            assert all(text.index(call) < at for (call, _), at in zip(answers, results, strict=True))
            unknown = [text.index(word) for owner, word in history.unknown if owner == turn]
            assert not results or all(at > max(results) for at in unknown)


def said(role: str, content: str | None, *calls: str, answers: str | None = None) -> Message:
    """A message; each of `calls` is an id and the word of its arguments."""
    made = (
        ToolCall(call.split()[0], FunctionCall("read", f'{{"path": "{call.split()[1]}"}}')) for call in calls
    )
    return Message(role=role, content=content, tool_calls=tuple(made), tool_call_id=answers)


A, B = "aaaaaaaa1", "bbbbbbbb2"
USER = said("user", "USER-1")
HISTORIES: dict[str, list[Message]] = {
    "a call without a result": [USER, said("assistant", None, f"{A} path-1"), said("user", "USER-2")],
    "results without a call": [
        said("tool", "RESULT-1", answers=A),
        USER,
        said("tool", "RESULT-2", answers=A),
        said("assistant", "ANSWER-1"),
        said("tool", "RESULT-3", answers=A),
    ],
    "a result after another answer": [
        USER,
        said("assistant", None, f"{A} path-1", f"{B} path-2"),
        said("tool", "RESULT-2", answers=B),
        said("assistant", "ANSWER-1"),
        said("user", "USER-2"),
        said("tool", "RESULT-1", answers=A),
    ],
    "two turns with calls in a row": [
        USER,
        said("assistant", None, f"{A} path-1"),
        said("assistant", "ANSWER-1", f"{B} path-2"),
        said("tool", "RESULT-2", answers=B),
        said("tool", "RESULT-1", answers=A),
    ],
    "an answer after a call without a result": [
        said("assistant", None, f"{A} path-1"),
        said("assistant", "ANSWER-1"),
        said("user", "USER-1"),
    ],
    "the beginning of an answer after calls without results": [
        USER,
        said("assistant", None, f"{A} path-1", f"{B} path-2"),
        said("assistant", "ANSWER-1"),
    ],
    "an answer after a first call and its result": [
        said("assistant", None, f"{A} path-1"),
        said("tool", "RESULT-1", answers=A),
        said("assistant", "ANSWER-1"),
        said("user", "USER-1"),
    ],
    "a system message only": [said("system", "SYSTEM-1")],
    "an answer only": [said("assistant", "ANSWER-1")],
    "an empty answer only": [said("assistant", "")],
    "no text at all": [said("user", ""), said("assistant", ""), said("user", "")],
    "OpenAI's earlier role of results": [
        USER,
        said("assistant", None, "call_read path-1"),
        Message(role="function", name="read", content="RESULT-1"),
        Message(role="function", name="read", content="RESULT-2"),
    ],
    "a result without an id or a name": [
        USER,
        said("assistant", None, f"{A} path-1"),
        said("tool", "RESULT-1"),
        said("user", "USER-2"),
    ],
}


@real
def test_odd_histories_are_shown_without_loss(template: RealTemplate) -> None:
    for name, messages in HISTORIES.items():
        words = [str(message.content) for message in messages if message.content]
        words += [
            f"path-{call.function.arguments[-3]}" for message in messages for call in message.tool_calls
        ]
        for tools in (TOOLS, ()):
            text = render(template, messages, tools)
            assert [word for word in words if word not in text] == [], name


SCHEMAS: dict[str, dict[str, object]] = {
    "nothing": {},
    "no properties": {"type": "object"},
    "null in their place": {"type": "object", "properties": None, "required": None},
    "alternatives": {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
    "true": {"type": "object", "properties": {"a": True, "b": {"type": "array", "items": True}}},
    "no type": {"type": "object", "properties": {"a": {"enum": ["x", None]}, "b": {"const": 1}}},
    "several types": {"type": "object", "properties": {"a": {"type": ["integer", "null"]}}},
    "a reference": {"type": "object", "properties": {"a": {"$ref": "#"}}},
    "items by position": {
        "type": "object",
        "properties": {"a": {"type": "array", "items": [{"type": "string"}]}},
    },
    "no text as description": {
        "type": "object",
        "properties": {"a": {"type": "string", "description": None}},
    },
    "capitals": {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}},
    "names that templates read": {"type": "object", "properties": {"items": {}, "type": {"type": "object"}}},
}


@real
def test_any_schema_of_a_tool_is_shown(template: RealTemplate) -> None:
    messages = HISTORIES["an answer after a first call and its result"]
    for name, schema in SCHEMAS.items():
        for description in ("Does.", None):
            tool = Tool(name="tool-7f3a", description=description, parameters=schema)
            assert "tool-7f3a" in render(template, messages, (*TOOLS, tool)), name


@real
def test_an_answer_is_no_part_of_the_result_before_it(template: RealTemplate) -> None:
    assert "RESULT-1\n\nANSWER-1" not in render(
        template, HISTORIES["an answer after a first call and its result"]
    )


OWN_INSTRUCTIONS = ("allenai-Olmo-3.1-32B-Instruct", "muse-glimmer", "unsloth-Apriel-1.5")
"""Templates that show instructions of their own where a history has no system message at all."""


@real
@pytest.mark.parametrize("first", [(), (said("system", "SYSTEM-1"),)], ids=["none", "one"])
def test_a_later_system_message_changes_nothing_before_the_answer_that_it_follows(
    template: RealTemplate, first: tuple[Message, ...]
) -> None:
    """Else all of the session is read again for a reminder."""
    if not first and template.name in OWN_INSTRUCTIONS:
        return
    session = [
        *first,
        USER,
        said("assistant", "ANSWER-1"),
        said("user", "USER-2"),
        said("assistant", "ANSWER-2"),
    ]
    shown = render(template, [*session, said("user", "USER-3")])
    reminded = render(template, [*session, said("system", "LATE-1"), said("user", "USER-3")])
    assert reminded.startswith(shown[: shown.index("ANSWER-1")])
    assert reminded.index("ANSWER-2") < reminded.index("LATE-1") < reminded.index("USER-3")


def order_of(messages: list[Message], *, one_call_a_turn: bool = False) -> str:
    """Messages in short: the names of calls in brackets, and other texts."""
    shown = with_results_at_their_calls(tuple(messages), one_call_a_turn=one_call_a_turn)
    return " ".join(
        "[" + " ".join(call.id for call in message.tool_calls) + "]"
        if message.tool_calls
        else str(message.content)
        for message in shown
    )


def result(text: str, call_id: str | None) -> Message:
    return Message(role="tool", content=text, tool_call_id=call_id)


@pytest.mark.parametrize(
    ("sent", "shown", "split"),
    [
        ([result("2", "b"), result("1", "a")], "[a b] 1 2", "[a] 1 [b] 2"),
        ([result("2", "b"), USER, result("1", "a")], "[a b] 1 2 USER-1", "[a] 1 [b] 2 USER-1"),
        ([result("?", "z"), result("!", "y"), result("1", "a")], "[a b] 1 ? !", "[a] 1 [b] ? !"),
        ([result("1", None), result("2", None), result("?", None)], "[a b] 1 2 ?", "[a] 1 [b] 2 ?"),
        ([result("1", "a"), result("1 again", "a")], "[a b] 1 1 again", "[a] 1 [b] 1 again"),
        ([result("2", "b")], "[a b] 2", "[a] [b] 2"),
    ],
    ids=["swapped", "the user between", "unknown ids last", "no ids", "one twice", "one is missing"],
)
def test_results_follow_their_calls_in_the_order_of_the_calls(
    sent: list[Message], shown: str, split: str
) -> None:
    turn = said("assistant", None, "a x", "b y")
    assert order_of([turn, *sent]) == shown
    assert order_of([turn, *sent], one_call_a_turn=True) == split


def test_calls_that_share_an_id_take_their_results_in_order() -> None:
    turn = said("assistant", None, "a x", "a y")
    messages = [turn, result("1", "a"), result("2", "a"), turn, result("3", "a"), result("4", "a")]
    assert order_of(messages) == "[a a-2] 1 2 [a-3 a-4] 3 4"
    assert order_of(messages, one_call_a_turn=True) == "[a] 1 [a-2] 2 [a-3] 3 [a-4] 4"
    others = [said("assistant", None, "a-2 x"), result("1", "a-2")]
    assert order_of([*others, *messages]) == "[a-2] 1 [a a-3] 1 2 [a-4 a-5] 3 4"


def test_a_second_result_of_a_call_has_its_tools_name_too() -> None:
    call = Message(role="assistant", tool_calls=(ToolCall("a", FunctionCall("read", "{}")),))
    results = [
        Message(role="tool", content=text, tool_call_id=id_)
        for text, id_ in (("1", "a"), ("2", "a"), ("3", "b"))
    ]
    shown = with_results_at_their_calls((call, *results), one_call_a_turn=False)
    assert [(message.content, message.name) for message in shown[1:]] == [
        ("1", "read"),
        ("2", "read"),
        ("3", None),
    ]


def test_results_have_the_ids_and_names_of_their_calls() -> None:
    turn = said("assistant", None, "a x", "b y")
    messages = (turn, Message(role="function", name="read", content="1"), result("2", "b"))
    _, first, second = with_results_at_their_calls(messages, one_call_a_turn=False)
    assert (first.role, first.tool_call_id, first.name) == ("tool", "a", "read")
    assert (second.role, second.tool_call_id, second.name) == ("tool", "b", "read")


NINE = [each for each in templates() if "length != 9" in each.source]


@pytest.mark.parametrize("template", NINE, ids=lambda template: template.name)
@pytest.mark.parametrize(
    "ids", [("call_0", "call_1"), ("toolu_01A", "toolu_01B"), ("functions.read:0", ""), (A, "b" * 9)]
)
def test_ids_become_nine_characters_where_the_template_wants_them(
    template: RealTemplate, ids: tuple[str, str]
) -> None:
    calls = tuple(ToolCall(call_id, FunctionCall("read", "{}")) for call_id in ids)
    messages = [USER, Message(role="assistant", tool_calls=calls), result("R1", ids[0]), result("R2", ids[1])]
    text = render(template, messages)
    assert text == render(template, messages), "ids are the same in each request"
    shown = [nine_characters(call_id) for call_id in ids]
    assert len(set(shown)) == 2
    assert [text.count(call_id) for call_id in shown] == [2, 2]
