from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from jan_serve.core.messages import IMAGE_NOTE, FunctionCall, ImagePart, Message, TextPart, ToolCall
from jan_serve.dialects.openai.responses.parse import History
from jan_serve.dialects.openai.responses.wire import InputItem
from jan_serve.dialects.shared.thinking_fields import THOUGHT as PACKED
from jan_serve.dialects.shared.thinking_fields import UNREAD_THOUGHT
from jan_serve.errors import InvalidRequest, UnsupportedContent

ITEM: TypeAdapter[InputItem] = TypeAdapter(InputItem)

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
