"""Messages of Anthropic's API as the turns of a template."""

from __future__ import annotations

from typing import Any, Final

import pytest

from jan_serve.core.messages import (
    DOCUMENT_NOTE,
    IMAGE_NOTE,
    DocumentPart,
    FunctionCall,
    ImagePart,
    Message,
    TextPart,
    ToolCall,
)
from jan_serve.dialects.anthropic.messages.conversation import Conversation
from jan_serve.dialects.anthropic.messages.wire import CountTokensRequest
from jan_serve.dialects.shared.thinking_fields import THOUGHT, UNREAD_THOUGHT
from jan_serve.errors import InvalidRequest, UnsupportedContent

Turns = list[tuple[str, Any]]


def conversation(messages: Turns, system: Any = None) -> Conversation:
    shaped = [{"role": role, "content": content} for role, content in messages]
    body = CountTokensRequest.model_validate({"model": "m", "messages": shaped, "system": system})
    return Conversation(body.system, body.messages)


def turns(messages: Turns, system: Any = None) -> list[tuple[str, Any]]:
    """Role and content of each turn; of a call its function."""
    found = conversation(messages, system).messages
    return [(each.role, each.content) for each in found]


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def result(call_id: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


USE: Final = {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {"path": "é"}}
IMAGE: Final = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}

PLACED: Final[list[tuple[str, Turns, Any, list[tuple[str, Any]]]]] = [
    ("text", [("user", "Hi")], "Be kind.", [("system", "Be kind."), ("user", "Hi")]),
    ("blocks", [("user", [text("a"), text("b")])], [text("x"), text("y")], [("system", "x\n\ny"), ("user", "a\n\nb")]),
    ("no instructions", [("user", "Hi")], "", [("user", "Hi")]),
    (
        "a system message before the first answer ends the instructions",
        [("user", "Hi"), ("system", "Late."), ("assistant", "Yes"), ("user", "Go")],
        "Early.",
        [("system", "Early.\n\nLate."), ("user", "Hi"), ("assistant", "Yes"), ("user", "Go")],
    ),
    (
        "a later one is part of the user's turn",
        [("user", "Hi"), ("assistant", "Yes"), ("user", "Go"), ("system", "New."), ("user", "on")],
        None,
        [
            ("user", "Hi"),
            ("assistant", "Yes"),
            ("user", "Go\n\n<system-reminder>\nNew.\n</system-reminder>\n\non"),
        ],
    ),
    (
        "results come first",
        [("user", "Hi"), ("assistant", [USE]), ("system", [text("S")]), ("user", [text("t"), result("toolu_1", "r")])],
        None,
        [
            ("user", "Hi"),
            ("assistant", None),
            ("tool", "r"),
            ("user", "<system-reminder>\nS\n</system-reminder>\n\nt"),
        ],
    ),
    (
        "turns of one role are one",
        [("user", "a"), ("user", [text("b")]), ("assistant", "c"), ("assistant", "d")],
        None,
        [("user", "a\n\nb"), ("assistant", "cd")],
    ),
    ("an empty turn stays", [("user", [])], None, [("user", "")]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("messages", "system", "expected"), [case[1:] for case in PLACED], ids=[c[0] for c in PLACED]
)
def test_where_text_goes(messages: Turns, system: Any, expected: list[tuple[str, Any]]) -> None:
    assert turns(messages, system) == expected


def test_what_was_sent_stays_where_it_was_in_later_turns() -> None:
    """Else the prefix cache would be of no use."""
    said: Turns = [("user", "Hi"), ("system", "S1")]
    more: Turns = [*said, ("assistant", [USE]), ("user", [result("toolu_1", "r")]), ("system", "S2")]
    last: Turns = [*more, ("assistant", "Done"), ("user", "Thanks"), ("system", "S3")]
    for before, after in ((said, more), (more, last)):
        first, second = conversation(before, "X").messages, conversation(after, "X").messages
        assert second[: len(first)] == first


def test_an_answer_has_thoughts_text_and_calls() -> None:
    packed = THOUGHT.packed("third")
    blocks = [
        {"type": "thinking", "thinking": "first", "signature": "of Anthropic"},
        {"type": "redacted_thinking", "data": "?"},
        {"type": "thinking", "thinking": "second"},
        {"type": "thinking", "thinking": "", "signature": packed},
        {"type": "thinking", "thinking": "", "signature": "of Anthropic"},
        text("Let me "), text("see."), USE, {**USE, "id": "toolu_2", "input": {}},
    ]  # fmt: skip
    [_, answer] = conversation([("user", "Hi"), ("assistant", blocks)]).messages
    assert answer == Message(
        role="assistant",
        content="Let me see.",
        reasoning_content="first\n\nsecond\n\nthird",
        tool_calls=(
            ToolCall("toolu_1", FunctionCall("ls", '{"path": "é"}')),
            ToolCall("toolu_2", FunctionCall("ls", "{}")),
        ),
    )


RESULTS: Final[list[tuple[dict[str, Any], str]]] = [
    (result("a", None), ""),
    (result("a", "r"), "r"),
    (result("a", "r", is_error=False), "r"),
    (result("a", "no file", is_error=True), "Error: no file"),
    (result("a", [text("r"), text("s")]), "r\n\ns"),
    (result("a", [{"type": "tool_reference", "tool_name": "x"}]), ""),
    (
        result("a", [{"type": "search_result", "source": "u", "title": "T", "content": [text("p")]}]),
        "T (u)\n\np",
    ),
]


@pytest.mark.parametrize(("block", "content"), RESULTS)
def test_a_result_is_the_turn_of_a_tool(block: dict[str, Any], content: str) -> None:
    found = conversation([("user", "Hi"), ("assistant", "."), ("user", [block])])
    assert found.messages[-1] == Message(role="tool", content=content, tool_call_id="a")
    assert found.ends_with_result
    assert found.warnings == []


def test_an_image_in_a_result_has_words_for_models_without_sight() -> None:
    found = conversation(
        [("user", "Hi"), ("assistant", "."), ("user", [result("a", [text("r"), IMAGE], is_error=True)])]
    )
    image = ImagePart("data:image/png;base64,AA==", "messages[2].content[0].content[1].source", IMAGE_NOTE)
    assert found.messages[-1].content == (TextPart("Error: r"), image)
    [alone] = conversation([("user", [result("a", [IMAGE], is_error=True)])]).messages
    assert isinstance(alone.content, tuple)
    assert alone.content[0] == TextPart("Error: ")


WHERE: Final = "messages[0].content[0]"
DOCUMENTS: Final[list[tuple[dict[str, Any], Any]]] = [
    ({"source": {"type": "text", "media_type": "text/plain", "data": "d"}, "title": "T", "context": "C"},
     "T\n\nC\n\nd"),
    ({"source": {"type": "content", "content": "d"}}, "d"),
    ({"source": {"type": "content", "content": [text("d"), text("e")]}}, "d\n\ne"),
    (
        {"source": {"type": "content", "content": [text("d"), IMAGE]}},
        (TextPart("d"), ImagePart("data:image/png;base64,AA==", f"{WHERE}.source.content[1].source")),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("document", "content"), DOCUMENTS)
def test_the_text_of_a_document_is_read(document: dict[str, Any], content: Any) -> None:
    assert turns([("user", [{"type": "document", **document}])]) == [("user", content)]


PDF: Final[dict[str, Any]] = {
    "type": "document",
    "title": "T",
    "source": {"type": "base64", "media_type": "application/pdf", "data": ""},
}
ELSEWHERE: Final[dict[str, Any]] = {"type": "document", "source": {"type": "url", "url": "https://a/b.pdf"}}


WITH_DOCUMENTS: Final[list[Turns]] = [
    [("user", [result("a", [PDF])])],
    [("user", [result("a", "read")]), ("user", [PDF])],
    [("user", [PDF]), ("user", [])],
    [("user", [PDF]), ("assistant", "."), ("user", "Hi")],
]


@pytest.mark.parametrize("messages", WITH_DOCUMENTS)
def test_a_document_that_cannot_be_read_does_not_end_a_conversation(messages: Turns) -> None:
    """An agent reads a PDF file, or it stays in the conversation after it was rejected."""
    contents = [turn.content for turn in conversation(messages).messages]
    assert any(
        isinstance(part, DocumentPart) and part.note == DOCUMENT_NOTE
        for content in contents
        if isinstance(content, tuple)
        for part in content
    )


def test_a_document_elsewhere_that_an_agent_read_is_a_note() -> None:
    found = conversation([("user", [result("a", [ELSEWHERE])])]).messages
    assert [turn.content for turn in found] == [DOCUMENT_NOTE]


def test_images_of_the_user_are_parts() -> None:
    url = {"type": "image", "source": {"type": "url", "url": "https://a/b.png"}}
    images = (
        ImagePart("data:image/png;base64,AA==", "messages[0].content[2].source"),
        ImagePart("https://a/b.png", "messages[1].content[0].source"),
    )
    assert turns([("user", [text("a"), text("b"), IMAGE]), ("user", [url])]) == [
        ("user", (TextPart("a\n\nb"), *images))
    ]


def test_blocks_of_other_services_are_left_out_with_a_warning() -> None:
    found = conversation([("user", "Hi"), ("assistant", [{"type": "server_tool_use", "id": "x"}, text("a")])])
    assert [each.content for each in found.messages] == ["Hi", "a"]
    assert found.warnings == ["messages[1]: server_tool_use is not on this server, and left out"]


@pytest.mark.parametrize(
    ("block", "warned"),
    [
        ({"type": "redacted_thinking", "data": "?"}, [f"messages[1]: {UNREAD_THOUGHT}"]),
        (
            {"type": "thinking", "thinking": "", "signature": "of Anthropic"},
            [f"messages[1]: {UNREAD_THOUGHT}"],
        ),
        ({"type": "thinking", "thinking": "", "signature": THOUGHT.packed("Hm.")}, []),
        ({"type": "thinking", "thinking": "", "signature": ""}, []),
    ],
)
def test_a_thought_that_only_its_maker_reads_is_warned_of(block: dict[str, Any], warned: list[str]) -> None:
    assert conversation([("user", "Hi"), ("assistant", [block, text("a")])]).warnings == warned


def test_what_is_left_out_of_a_result_is_warned_of() -> None:
    answer = result("toolu_1", [{"type": "container_upload", "file_id": "x"}, text("r")])
    found = conversation([("user", "Hi"), ("assistant", [USE]), ("user", [answer])])
    assert found.messages[-1].content == "r"
    assert found.warnings == ["messages[2]: container_upload is not on this server, and left out"]


REFUSED: Final[list[tuple[Turns, str, type[InvalidRequest]]]] = [
    ([], "at least one message", InvalidRequest),
    ([("system", "x")], "at least one message", InvalidRequest),
    ([("user", [{"type": "image", "source": {"type": "file", "file_id": "f"}}])], "base64", UnsupportedContent),
    ([("user", [ELSEWHERE])], "source url cannot be read", UnsupportedContent),
    ([("system", [IMAGE])], "a system message holds an image", UnsupportedContent),
    ([("assistant", [IMAGE])], "an assistant's message cannot hold image", InvalidRequest),
    ([("assistant", [result("a", "b")])], "cannot hold tool_result", InvalidRequest),
    ([("user", [text("a"), USE])], "a user's message cannot hold tool_use", InvalidRequest),
    ([("user", [{"type": "thinking", "thinking": "a"}])], "cannot hold thinking", InvalidRequest),
    ([("user", "a"), ("system", [result("a", "b")])], "cannot hold tool_result", InvalidRequest),
]  # fmt: skip


@pytest.mark.parametrize(("messages", "words", "kind"), REFUSED)
def test_what_cannot_be_read_is_rejected(messages: Turns, words: str, kind: type[InvalidRequest]) -> None:
    with pytest.raises(kind, match=words) as found:
        conversation(messages)
    assert (found.value.param or "").partition("[")[0] == "messages"
