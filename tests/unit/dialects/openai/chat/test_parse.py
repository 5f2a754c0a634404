from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from jan_serve.core.messages import (
    IMAGE_NOTE,
    AudioPart,
    FunctionCall,
    ImagePart,
    Message,
    TextPart,
    Tool,
    ToolCall,
    ToolChoice,
)
from jan_serve.core.request import (
    ChatPrompt,
    GenerationRequest,
)
from jan_serve.errors import InvalidRequest, UnsupportedContent
from tests.unit.dialects.openai_requests import HI, JAN_SAMPLING, chat, chat_prompt


def test_defaults_of_a_chat() -> None:
    prompt = ChatPrompt(messages=(Message(role="user", content="Hi"),))
    assert chat() == GenerationRequest(prompt=prompt, sampling=JAN_SAMPLING, given=frozenset({"messages"}))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"max_tokens": None}, None), ({"max_tokens": 0}, None), ({"max_tokens": -1}, None), ({"max_tokens": 9}, 9),
        ({"max_completion_tokens": 4, "max_tokens": 9}, 4), ({"max_output_tokens": 3}, 3),
    ],
)  # fmt: skip
def test_max_tokens_of_a_chat(body: dict[str, Any], expected: int | None) -> None:
    assert chat(**body).stopping.max_tokens == expected


@pytest.mark.parametrize(("given", "apart"), [(None, True), ("auto", True), ("none", False)])
def test_thoughts_stay_in_the_text_on_request(given: str | None, apart: bool) -> None:
    prompt = chat(reasoning_format=given).prompt
    assert isinstance(prompt, ChatPrompt)
    assert prompt.split_thoughts is apart


def test_logprobs_of_a_chat() -> None:
    """Those of the chosen tokens, and of so many others beside each."""
    assert chat(logprobs=True).logprobs == 0
    assert chat(top_logprobs=3).logprobs is None
    assert chat(logprobs=True, top_logprobs=0).logprobs == 0
    assert chat(logprobs=True, top_logprobs=3).logprobs == 3


REFUSED_CHATS: list[tuple[str, Any, str]] = [
    ("max_tokens", -5, "-1"),
    ("max_completion_tokens", -2, "-1"),
    ("top_logprobs", 100_000, "from 0 to 100"),
    ("tools", [{"type": "function", "function": {"name": "f"}}] * 10_000, "limit is 512"),
    ("functions", [{"name": "f"}] * 10_000, "limit is 512"),
    ("messages", HI * 10_001, "limit is 10000"),
    ("response_format", {"type": "json_schema"}, "needs a schema"),
    ("response_format", {"type": "regex"}, "needs a pattern"),
]


@pytest.mark.parametrize(("field", "value", "words"), REFUSED_CHATS)
def test_chats_that_are_rejected(field: str, value: Any, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        chat(**{field: value})
    assert caught.value.param == field
    assert words in caught.value.message


def test_a_long_wrong_list_costs_one_error() -> None:
    lists: dict[str, list[Any]] = {"stop": [1] * 60, "messages": [{}] * 9000, "tools": [{}] * 500}
    for field, value in lists.items():
        with pytest.raises(ValidationError) as caught:
            chat(**{field: value})
        assert len(caught.value.errors()) <= 3


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("wire", "message"),
    [
        ({"role": "system", "content": "s"}, Message(role="system", content="s")),
        ({"role": "developer", "content": "s"}, Message(role="system", content="s")),
        ({"role": "user", "content": "u", "name": "Ann"}, Message(role="user", content="u", name="Ann")),
        ({"role": "user", "content": None}, Message(role="user")),
        ({"role": "assistant"}, Message(role="assistant")),
        (
            {"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None},
            Message(role="assistant", tool_calls=(ToolCall("c1", FunctionCall("f", "{}")),)),
        ),
        (
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            Message(role="assistant", content=(TextPart("No."),)),
        ),
        ({"role": "assistant", "refusal": "No."}, Message(role="assistant", content="No.")),
        ({"role": "assistant", "content": "", "refusal": "No."}, Message(role="assistant", content="No.")),
        ({"role": "assistant", "content": "Hm.", "refusal": None}, Message(role="assistant", content="Hm.")),
        (
            {"role": "assistant", "content": "Hm.", "refusal": "No."},
            Message(role="assistant", content=(TextPart("Hm."), TextPart("No."))),
        ),
        (
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "Hm."}, {"type": "refusal", "refusal": "No."}],
            },
            Message(role="assistant", content=(TextPart("Hm."), TextPart("No."))),
        ),
        (
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "c1", "type": "custom", "custom": {"name": "sh", "input": 'ls "a"'}},
                    CALL,
                ],
            },
            Message(
                role="assistant",
                tool_calls=(
                    ToolCall("c1", FunctionCall("sh", '{"input": "ls \\"a\\""}')),
                    ToolCall("c1", FunctionCall("f", "{}")),
                ),
            ),
        ),
        (
            {"role": "assistant", "function_call": {"name": "f", "arguments": "{"}},
            Message(role="assistant", tool_calls=(ToolCall("call_f", FunctionCall("f", "{")),)),
        ),
        (
            {"role": "tool", "content": "2", "tool_call_id": "c1"},
            Message(role="tool", content="2", tool_call_id="c1"),
        ),
        ({"role": "function", "content": None, "name": "f"}, Message(role="function", name="f")),
        ({"role": "tool", "name": "f"}, Message(role="tool", name="f")),
        (
            {
                "role": "assistant",
                "tool_calls": [
                    {"function": {"name": "f", "arguments": {"a": "é"}}},
                    {"id": None, "function": {"name": "g", "arguments": None}},
                    {"function": {"name": "h"}},
                ],
            },
            Message(
                role="assistant",
                tool_calls=(
                    ToolCall("", FunctionCall("f", '{"a":"é"}')),
                    ToolCall("", FunctionCall("g", "{}")),
                    ToolCall("", FunctionCall("h", "{}")),
                ),
            ),
        ),
        (
            {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
            Message(role="user", content=(TextPart("a"),)),
        ),
        (
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "x"},
                    {"type": "thinking", "thinking": [{"type": "text", "text": "So."}]},
                    {"type": "reasoning", "text": "Well."},
                    {"type": "output_text", "text": "a"},
                ],
            },
            Message(role="assistant", content=(TextPart("a"),), reasoning_content="Hm.\n\nSo.\n\nWell."),
        ),
        (
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."}], "reasoning": "So."},
            Message(role="assistant", content=(), reasoning_content="So."),
        ),
        (
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": "x"}],
            },
            Message(role="user", content=(TextPart("a"), ImagePart("x", "messages[0].content[1].image_url"))),
        ),
        (
            {"role": "user", "content": [{"type": "input_image", "image_url": "x", "detail": "low"}]},
            Message(role="user", content=(ImagePart("x", "messages[0].content[0].image_url"),)),
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "y", "detail": "low"}}]},
            Message(role="user", content=(ImagePart("y", "messages[0].content[0].image_url"),)),
        ),
        *(
            (
                {
                    "role": "user",
                    "content": [{"type": "image_url", "image_url": {"url": "y", "detail": detail}}],
                },
                Message(role="user", content=(ImagePart("y", "messages[0].content[0].image_url"),)),
            )
            for detail in ("auto", "high", "original", None)
        ),
        (
            {"role": "tool", "content": [{"type": "image_url", "image_url": "x"}], "tool_call_id": "c1"},
            Message(
                role="tool",
                content=(ImagePart("x", "messages[0].content[0].image_url", IMAGE_NOTE),),
                tool_call_id="c1",
            ),
        ),
        (
            {"role": "function", "content": [{"type": "image_url", "image_url": "x"}], "name": "f"},
            Message(
                role="function",
                content=(ImagePart("x", "messages[0].content[0].image_url", IMAGE_NOTE),),
                name="f",
            ),
        ),
        (
            {
                "role": "user",
                "content": [{"type": "input_audio", "input_audio": {"data": "QQ==", "format": "wav"}}],
            },
            Message(role="user", content=(AudioPart("QQ==", "messages[0].content[0].input_audio.data"),)),
        ),
    ],
)
def test_messages(wire: dict[str, Any], message: Message) -> None:
    assert chat_prompt(messages=[wire]).messages == (message,)


BAD_MESSAGES: list[Any] = [
        {}, {"role": "user"}, {"role": "wizard", "content": "x"}, {"role": "tool", "content": 1}, "text",
        {"role": "function", "content": "x"}, {"role": "system"}, {"role": "user", "content": [{"type": "text"}]},
        {"role": "user", "content": [{"type": "smell", "smell": "x"}]}, {"role": "assistant", "tool_calls": [{}]},
        {"role": "user", "content": 3},
]  # fmt: skip


@pytest.mark.parametrize("wire", BAD_MESSAGES)
def test_messages_that_break_the_schema(wire: Any) -> None:
    with pytest.raises(ValidationError):
        chat(messages=[wire])


def test_a_redacted_thought_is_left_out_with_a_warning() -> None:
    parts = [{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "a"}]
    request = chat(messages=[{"role": "assistant", "content": parts}])
    assert request.warnings == ("messages[0]: a thought that this server cannot read is left out",)
    assert isinstance(request.prompt, ChatPrompt)
    assert request.prompt.messages == (Message(role="assistant", content=(TextPart("a"),)),)


def test_a_thought_that_is_not_the_models_is_rejected() -> None:
    part = {"type": "thinking", "thinking": "Hm."}
    with pytest.raises(InvalidRequest, match=r"messages\[0\]\.content\[0\]: a thought belongs"):
        chat(messages=[{"role": "user", "content": [part]}])


def test_media_parts_are_rejected_by_type() -> None:
    part = {"type": "video_url", "video_url": {"url": "y"}}
    with pytest.raises(UnsupportedContent, match="video_url"):
        chat(messages=[{"role": "user", "content": [part]}])


FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object"}}


TOOL = Tool(name="f", description="d", parameters={"type": "object"})


@pytest.mark.parametrize(
    ("body", "tools", "choice"),
    [
        ({}, (), ToolChoice("auto")),
        ({"tools": [{"type": "function", "function": FUNCTION}]}, (TOOL,), ToolChoice("auto")),
        ({"functions": [FUNCTION], "function_call": "none"}, (TOOL,), ToolChoice("none")),
        ({"functions": [FUNCTION], "function_call": {"name": "f"}}, (TOOL,), ToolChoice("named", "f")),
        ({"tools": [], "tool_choice": "required"}, (), ToolChoice("required")),
        (
            {"tool_choice": {"type": "function", "function": {"name": "f"}}, "function_call": "none"},
            (),
            ToolChoice("named", "f"),
        ),
    ],
)
def test_tools(body: dict[str, Any], tools: tuple[Tool, ...], choice: ToolChoice) -> None:
    prompt = chat_prompt(**body)
    assert (prompt.tools, prompt.tool_choice) == (tools, choice)


def test_stop_sequences_of_the_ai_sdk_are_added() -> None:
    assert chat(stop="a", stop_sequences=["b"]).stopping.stop == ("a", "b")
