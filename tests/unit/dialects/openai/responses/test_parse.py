from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from jan_serve.core.constraint import Constraint, JsonObjectConstraint, JsonSchemaConstraint
from jan_serve.core.messages import IMAGE_NOTE, FunctionCall, ImagePart, Message, TextPart, ToolCall
from jan_serve.core.request import ChatPrompt, GenerationRequest, SamplingParams
from jan_serve.dialects.openai.responses.parse import History, ParsedResponse, response_request
from jan_serve.dialects.openai.responses.wire import CreateResponseRequest, InputItem
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.generation_fields import REASONING_BUDGETS
from jan_serve.dialects.shared.thinking_fields import THOUGHT as PACKED
from jan_serve.dialects.shared.thinking_fields import UNREAD_THOUGHT
from jan_serve.errors import InvalidRequest, UnsupportedContent

ITEM: TypeAdapter[InputItem] = TypeAdapter(InputItem)


def parsed(previous: list[Any] | None = None, **fields: Any) -> ParsedResponse:
    body = CreateResponseRequest.model_validate({"input": "Hi"} | fields)
    return response_request(body, [ITEM.validate_python(item) for item in previous or ()], body.input)


def generation(**fields: Any) -> GenerationRequest:
    return parsed(**fields).generation


def prompt(previous: list[Any] | None = None, **fields: Any) -> ChatPrompt:
    found = parsed(previous, **fields).generation.prompt
    assert isinstance(found, ChatPrompt)
    return found


def test_defaults_are_those_of_a_chat() -> None:
    assert generation() == GenerationRequest(
        prompt=ChatPrompt(messages=(Message(role="user", content="Hi"),)),
        sampling=SamplingParams(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, repeat_penalty=1.1),
        given=frozenset({"input"}),
    )


def test_null_is_absent_in_every_field() -> None:
    fields = dict.fromkeys(name for name in CreateResponseRequest.model_fields if name != "input")
    assert generation(**fields) == generation()


def test_fields_that_nobody_knows_are_ignored() -> None:
    more = {
        "client_metadata": {"a": "b"},
        "service_tier": "auto",
        "stream_options": {"include_obfuscation": False},
    }
    assert generation(**more).prompt == generation().prompt


def test_sampling_and_limits() -> None:
    request = generation(
        model="m", temperature=0, top_p=0.5, max_output_tokens=7, keep_alive="5m", seed=3, stop="x"
    )
    assert (request.model, request.ttl_s) == ("m", 300.0)
    assert (request.sampling.temperature, request.sampling.top_p, request.sampling.seed) == (0, 0.5, 3)
    assert (request.stopping.max_tokens, request.stopping.stop) == (7, ("x",))
    assert {"temperature", "top_p", "max_tokens", "seed", "stop"} <= (request.given or frozenset())


def test_instructions_come_first_and_are_of_this_request() -> None:
    before = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert [(message.role, message.content) for message in prompt(before, instructions="Be kind.").messages] == [
        ("system", "Be kind."), ("user", "a"), ("assistant", "b"), ("user", "Hi"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ({}, None),
        ({"verbosity": "low"}, None),
        ({"format": {"type": "text"}}, None),
        ({"format": {"type": "json_object"}}, JsonObjectConstraint()),
        (
            {"format": {"type": "json_schema", "name": "n", "strict": True, "schema": {"type": "object"}}},
            JsonSchemaConstraint({"type": "object"}),
        ),
    ],
)
def test_formats(text: Any, expected: Constraint | None) -> None:
    assert generation(text=text).constraint == expected


@pytest.mark.parametrize(
    ("reasoning", "budget", "kwargs"),
    [
        (None, None, {}),
        ({"summary": "auto"}, None, {}),
        ({"effort": "low"}, REASONING_BUDGETS["low"], {"reasoning_effort": "low"}),
        ({"effort": "max"}, None, {"reasoning_effort": "max"}),
        ({"effort": "none"}, 0, {"reasoning_effort": "none", "enable_thinking": False}),
    ],
)
def test_reasoning(reasoning: Any, budget: int | None, kwargs: dict[str, Any]) -> None:
    found = prompt(reasoning=reasoning)
    assert (found.reasoning_budget, found.template_kwargs) == (budget, kwargs)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"top_logprobs": 0}, None),
        ({"top_logprobs": 3}, 3),
        ({"include": ["message.output_text.logprobs"]}, 0),
        ({"include": ["message.output_text.logprobs"], "top_logprobs": 2}, 2),
        ({"include": ["reasoning.encrypted_content", "what.comes.later"]}, None),
    ],
)
def test_logprobs(fields: dict[str, Any], expected: int | None) -> None:
    assert generation(**fields).logprobs == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"background": True, "store": False}, "store"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"conversation": {"id": "conv_1"}}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"metadata": {"k" * 65: "v"}}, "metadata"),
        ({"metadata": {"k": "v" * 513}}, "metadata"),
        ({"metadata": {str(number): "v" for number in range(17)}}, "metadata"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
        ({"temperature": 1e9}, "temperature"),
    ],
)
def test_unservable_files_are_rejected(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parsed(**fields)
    assert caught.value.param == param


WRONG: list[dict[str, Any]] = [
    {"input": 3},
    {"input": None},
    {"input": [{"type": "mesage", "role": "user", "content": "a"}]},
    {"input": [{"content": "a"}]},
    {"input": [{"role": "tool", "content": "a"}]},
    {"input": [{"role": "user", "content": [{"type": "video", "url": "a"}]}]},
    {"input": [{"type": ["message"], "role": "user", "content": "a"}]},
    {"max_output_tokens": 0},
    {"max_output_tokens": True},
    {"tools": [{}]},
    {"tools": [{"type": "function"}]},
    {"tool_choice": "sometimes"},
    {"tool_choice": {"name": "f"}},
    {"top_logprobs": -1},
    {"top_logprobs": limits.MAX_LOGPROBS + 1},
    {"truncation": "some"},
    {"metadata": {"a": 1}},
    {"stream": "yes"},
]


@pytest.mark.parametrize("fields", WRONG)
def test_wrong_types_break_the_schema(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        parsed(**fields)


def test_what_is_not_done_as_asked_is_told() -> None:
    assert parsed().generation.warnings == ()
    [truncation] = parsed(truncation="auto").generation.warnings
    assert "truncation" in truncation
    [item, tool] = parsed(
        input=[{"role": "user", "content": "a"}, {"type": "web_search_call", "id": "ws"}],
        tools=[{"type": "web_search"}],
    ).generation.warnings
    assert (item[:9], tool[:8]) == ("input[1]:", "tools[0]")


USER: dict[str, Any] = {"role": "user", "content": "q"}
THOUGHT: dict[str, Any] = {
    "type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}],
}  # fmt: skip
CALL: dict[str, Any] = {
    "type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}", "status": "completed",
}  # fmt: skip
OUTPUT: dict[str, Any] = {"type": "function_call_output", "call_id": "c1", "output": "r"}
SAID: dict[str, Any] = {
    "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
    "content": [{"type": "output_text", "text": "a", "annotations": [], "logprobs": []}],
}  # fmt: skip

ASKED = Message(role="user", content="q")
TOOL_CALL = ToolCall("c1", FunctionCall("f", "{}"))
RESULT = Message(role="tool", content="r", tool_call_id="c1")


def history(*items: dict[str, Any]) -> History:
    taken = History()
    taken.add([ITEM.validate_python(item) for item in items])
    return taken


def messages(*items: dict[str, Any]) -> list[Message]:
    return list(history(*items).finished())


def assistant(content: str | None = None, *, thought: str | None = None, calls: int = 0) -> Message:
    return Message(
        role="assistant",
        content=content,
        reasoning_content=thought,
        tool_calls=tuple(ToolCall(f"c{number}", FunctionCall("f", "{}")) for number in range(1, calls + 1)),
    )


TURNS: list[tuple[list[dict[str, Any]], list[Message]]] = [
    ([USER], [ASKED]),
    ([{"role": "developer", "content": "d"}, USER], [Message(role="system", content="d"), ASKED]),
    (
        [
            {
                "role": "system",
                "content": [{"type": "input_text", "text": "a"}, {"type": "text", "text": "b"}],
            }
        ],
        [Message(role="system", content="ab")],
    ),
    ([USER, SAID, USER], [ASKED, assistant("a"), ASKED]),
    ([{"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}], [assistant("No.")]),
    # One turn is one message.
    ([THOUGHT, SAID, CALL, OUTPUT], [assistant("a", thought="hm", calls=1), RESULT]),
    ([CALL, {**CALL, "call_id": "c2"}, OUTPUT], [assistant(calls=2), RESULT]),
    ([SAID, CALL, SAID], [assistant("aa", calls=1)]),
    # A result, somebody else's words, a second text or a new thought end it.
    ([CALL, OUTPUT, THOUGHT, SAID], [assistant(calls=1), RESULT, assistant("a", thought="hm")]),
    ([SAID, SAID], [assistant("a"), assistant("a")]),
    ([THOUGHT, CALL, THOUGHT, SAID], [assistant(thought="hm", calls=1), assistant("a", thought="hm")]),
    ([THOUGHT, THOUGHT, SAID], [assistant("a", thought="hm\n\nhm")]),
    ([{"type": "reasoning", "summary": []}, SAID], [assistant("a")]),
    (
        [{**CALL, "namespace": "mcp__docs", "name": "find"}],
        [Message(role="assistant", tool_calls=(ToolCall("c1", FunctionCall("mcp__docs__find", "{}")),))],
    ),
    (
        [
            {"type": "custom_tool_call", "call_id": "c1", "name": "p", "input": 'a "b"\n'},
            {
                "type": "custom_tool_call_output",
                "call_id": "c1",
                "output": [{"type": "input_text", "text": "r"}],
            },
        ],
        [
            Message(
                role="assistant",
                tool_calls=(ToolCall("c1", FunctionCall("p", '{"input": "a \\"b\\"\\n"}')),),
            ),
            RESULT,
        ],
    ),
]


@pytest.mark.parametrize(("items", "expected"), TURNS)
def test_items_become_turns(items: list[dict[str, Any]], expected: list[Message]) -> None:
    assert messages(*items) == expected


@pytest.mark.parametrize(
    ("fields", "thought"),
    [
        (
            {
                "encrypted_content": PACKED.packed("whole"),
                "summary": [{"type": "summary_text", "text": "s"}],
            },
            "whole",
        ),
        ({"encrypted_content": "gAAAA", "summary": [{"type": "summary_text", "text": "s"}]}, "s"),
        ({"encrypted_content": "gAAAA", "summary": []}, None),
        ({"summary": [{"type": "summary_text", "text": text} for text in "ab"], "content": None}, "a\n\nb"),
        (
            {
                "summary": [{"type": "summary_text", "text": "s"}],
                "content": [{"type": "reasoning_text", "text": "c"}],
            },
            "c",
        ),
    ],
)
def test_thoughts_come_back_from_what_is_there(fields: dict[str, Any], thought: str | None) -> None:
    taken = history({"type": "reasoning", **fields}, SAID)
    assert list(taken.finished()) == [assistant("a", thought=thought)]
    assert taken.warnings == ([] if thought else [f"input[0]: {UNREAD_THOUGHT}"])


@pytest.mark.parametrize("packed", [None, "", "x", "jan-serve:thought:%%", "jan-serve:thought:gA=="])
def test_what_is_no_thought_of_ours_is_none(packed: str | None) -> None:
    assert PACKED.unpacked(packed) is None
    assert PACKED.unpacked(PACKED.packed("Dürfen wir? 🙂")) == "Dürfen wir? 🙂"


def test_what_other_services_did_is_left_out_and_told() -> None:
    taken = history(USER, {"type": "web_search_call", "id": "ws", "status": "completed"}, SAID)
    assert list(taken.finished()) == [ASKED, assistant("a")]
    [warning] = taken.warnings
    assert warning.startswith("input[1]: web_search_call")


def test_an_image_of_the_user_is_a_part() -> None:
    parts = [
        {"type": "input_text", "text": "a"},
        {"type": "input_text", "text": "b"},
        {"type": "input_image", "image_url": "data:image/png;base64,", "detail": "low", "file_id": None},
    ]
    [found] = messages({"role": "user", "content": parts})
    image = ImagePart("data:image/png;base64,", "input[0].content[2].image_url")
    assert found == Message(role="user", content=(TextPart("ab"), image))


def test_an_image_from_a_tool_has_words_for_models_without_sight() -> None:
    parts = [
        {"type": "input_text", "text": "Seen. "},
        {"type": "input_image", "image_url": "data:image/png;base64,"},
    ]
    taken = history(CALL, {**OUTPUT, "output": parts})
    image = ImagePart("data:image/png;base64,", "input[1].output[1].image_url", IMAGE_NOTE)
    assert taken.finished()[1].content == (TextPart("Seen. "), image)
    assert taken.warnings == []


def test_a_screenshot_is_an_image_that_its_call_gave() -> None:
    shot = {"type": "computer_screenshot", "image_url": "data:image/png;base64,"}
    click = {"type": "click", "x": 1, "y": 2}
    taken = history(
        {"type": "computer_call", "call_id": "c1", "action": click, "status": "completed"},
        {"type": "computer_call_output", "call_id": "c1", "output": shot},
    )
    call = ToolCall("c1", FunctionCall("computer", json.dumps(click)))
    image = ImagePart("data:image/png;base64,", "input[1].output.image_url", IMAGE_NOTE)
    assert list(taken.finished()) == [
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", content=(image,), tool_call_id="c1"),
    ]
    assert taken.warnings == []


def test_several_actions_are_one_call() -> None:
    actions = [{"type": "move"}, {"type": "screenshot"}]
    [said] = messages({"type": "computer_call", "call_id": "c1", "actions": actions})
    assert json.loads(said.tool_calls[0].function.arguments) == {"actions": actions}


@pytest.mark.parametrize(
    ("item", "where"),
    [
        (
            {
                "type": "computer_call_output",
                "call_id": "c",
                "output": {"type": "computer_screenshot", "file_id": "f"},
            },
            "input[0].output.image_url",
        ),
        (
            {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_image"}]},
            "input[0].content[1].image_url",
        ),
        (
            {"role": "user", "content": [{"type": "input_image", "file_id": "f"}]},
            "input[0].content[0].image_url",
        ),
        (
            {"role": "assistant", "content": [{"type": "input_image", "image_url": "u"}]},
            "input[0].content",
        ),
        (
            {"role": "user", "content": [{"type": "input_file", "file_id": "f"}]},
            "input[0].content[0].file_data",
        ),
        ({**OUTPUT, "output": [{"type": "input_audio"}]}, "input[0].output[0]"),
    ],
)
def test_media_are_refused_with_their_place(item: dict[str, Any], where: str) -> None:
    with pytest.raises(UnsupportedContent) as caught:
        history(item)
    assert caught.value.message.startswith(f"{where}: ")
    assert caught.value.param == (where if where.endswith(("image_url", "file_data")) else "input")


def test_a_reference_to_what_is_not_kept_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"input\[1\]: the item 'rs_9' is not kept"):
        history(USER, {"type": "item_reference", "id": "rs_9"})


@pytest.mark.parametrize("kind", ["nonsense", "output", "hosted", "", None, 1])
def test_an_item_of_an_unknown_type_is_refused_with_the_types(kind: object) -> None:
    with pytest.raises(ValidationError, match="the type of an item must be message, function_call"):
        ITEM.validate_python({"type": kind, "call_id": "c", "output": "r"})
