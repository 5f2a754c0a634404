"""Exports of other pages, as these write them, and what is no export."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterable
from typing import Any, cast

import pytest

from jan_serve.api.chats.imports import read_chats
from jan_serve.errors import InvalidRequest

PICTURE = "data:image/png;base64,AA=="


def llama_cpp() -> dict[str, Any]:
    def message(name: str, parent: str | None, role: str, content: str, **more: Any) -> dict[str, Any]:
        return {
            "id": name, "convId": "c", "type": "text", "timestamp": 1_762_000_000_000, "role": role,
            "content": content, "parent": parent, "children": [], **more,
        }  # fmt: skip

    call = [{"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]
    return {
        "conv": {"id": "c", "name": "Weather", "lastModified": 1_762_000_000_123, "currNode": "a2"},
        "messages": [
            message("root", None, "system", "", type="root"),
            message("s", "root", "system", "Be brief."),
            message(
                "q", "s", "user", "Cold?",
                extra=[{"type": "TEXT", "name": "a.txt", "content": "one"},
                       {"type": "IMAGE", "name": "b.png", "base64Url": PICTURE},
                       {"type": "AUDIO", "name": "c.mp3", "base64Data": "AA==", "mimeType": "audio/mpeg"}],
            ),
            message("a1", "q", "assistant", "No."),
            message("a2", "q", "assistant", "Yes.", model="m", reasoningContent="Hm.", toolCalls=json.dumps(call)),
            message("t", "a2", "tool", "-5", toolCallId="call_1"),
        ],
    }  # fmt: skip


def open_webui() -> dict[str, Any]:
    def message(name: str, parent: str | None, role: str, content: str, **more: Any) -> dict[str, Any]:
        return {"id": name, "parentId": parent, "childrenIds": [], "role": role, "content": content, **more}

    thoughts = (
        '<details type="reasoning" done="true">\n<summary>Thought for a second</summary>\n> Hm.\n</details>\n'
    )
    files = [{"type": "image", "url": PICTURE},
             {"type": "file", "name": "a.txt", "file": {"data": {"content": "one"}}}]  # fmt: skip
    messages = [
        message("q", None, "user", "Cold?", files=files),
        message("a1", "q", "assistant", "No.", model="m"),
        message("a2", "q", "assistant", thoughts + "Yes.", model="m"),
    ]
    return {
        "id": "c", "user_id": "u", "title": "Weather", "updated_at": 1_762_000_000, "created_at": 1_761_000_000,
        "pinned": True, "archived": False, "share_id": None,
        "chat": {
            "title": "Weather", "models": ["m"], "params": {"system": "Be brief."}, "messages": messages[::2],
            "history": {"messages": {each["id"]: each for each in messages}, "currentId": "a2"},
        },
    }  # fmt: skip


def chatgpt() -> dict[str, Any]:
    def node(name: str, parent: str | None, role: str, content: Any, **facts: Any) -> dict[str, Any]:
        message: dict[str, Any] = {
            "id": name, "author": {"role": role, "name": None, "metadata": {}}, "create_time": 1.5, "content": content,
            "status": "finished_successfully", "recipient": facts.pop("recipient", "all"), "metadata": facts,
        }  # fmt: skip
        return {"id": name, "message": message, "parent": parent, "children": []}

    def text(*parts: Any) -> dict[str, Any]:
        return {"content_type": "text", "parts": list(parts)}

    pictured = {"content_type": "multimodal_text", "parts": [
        {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"}, "Cold?"]}  # fmt: skip
    search = {"content_type": "code", "language": "unknown", "text": "search()"}
    return {
        "title": "Weather", "create_time": 1_761_000_000.25, "update_time": 1_762_000_000.5, "conversation_id": "c",
        "current_node": "a2",
        "mapping": {
            "root": {"id": "root", "message": None, "parent": None, "children": ["s"]},
            "s": node("s", "root", "system", text(""), is_visually_hidden_from_conversation=True),
            "u": node("u", "s", "user", {"content_type": "user_editable_context", "user_profile": "x"}),
            "q": node("q", "u", "user", pictured),
            "x": node("x", "q", "assistant", search, recipient="web"),
            "y": node("y", "x", "tool", text("found")),
            "a1": node("a1", "q", "assistant", text("No.")),
            "a2": node("a2", "y", "assistant", text("Yes."), model_slug="m"),
        },
    }  # fmt: skip


def own() -> dict[str, Any]:
    return {
        "id": "c", "title": "Weather", "folder": "work", "pinned": True, "updated": 5,
        "settings": {"system": "Be brief.", "later": [1]},
        "messages": [
            {"id": "q", "role": "user", "text": "Cold?", "attachments": [{"kind": "text", "name": "a", "content": ""}]},
            {"id": "a2", "role": "assistant", "text": "Yes.", "version": 1, "later": 2,
             "versions": [[{"id": "a1", "role": "assistant", "text": "No."}]]},
        ],
    }  # fmt: skip


FORMS = {"llama.cpp": llama_cpp, "Open WebUI": open_webui, "ChatGPT": chatgpt, "jan-serve": own}


def read(body: object) -> tuple[Any, Any]:
    """The one chat, and its content."""
    (chat,), refused = read_chats(body)
    assert not refused
    return chat, json.loads(chat.content)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("around", ["alone", "list", "chats"])
def test_each_page_s_chat_is_read_with_both_answers(form: str, around: str) -> None:
    item = FORMS[form]()
    chat, content = read({"alone": item, "list": [item], "chats": {"chats": [item]}}[around])
    assert (chat.title, chat.text.count("Cold?"), "No." in chat.text) == ("Weather", 1, True)
    question, answer = content["messages"][:2]
    assert (question["role"], answer["role"], answer["text"]) == ("user", "assistant", "Yes.")
    assert (answer["version"], answer["versions"][0][0]["text"]) == (1, "No.")


def test_what_each_page_knows_beside_the_text_comes_too() -> None:
    chat, content = read(llama_cpp())
    question, answer, result = content["messages"]
    assert chat.updated == 1_762_000_000_123
    assert content["settings"]["system"] == "Be brief."
    assert [(each["kind"], each["name"]) for each in question["attachments"]] == [
        ("text", "a.txt"),
        ("image", "b.png"),
    ]
    assert (answer["reasoning"], answer["model"]) == ("Hm.", "m")
    assert answer["calls"] == [{"id": "call_1", "name": "weather", "arguments": "{}"}]
    assert (result["role"], result["callId"]) == ("tool", "call_1")

    chat, content = read(open_webui())
    question, answer = content["messages"]
    assert (chat.updated, chat.created, chat.pinned) == (1_762_000_000_000, 1_761_000_000_000, True)
    assert [each["kind"] for each in question["attachments"]] == ["image", "text"]
    assert (answer["reasoning"], content["settings"]["system"]) == ("Hm.", "Be brief.")

    chat, content = read(chatgpt())
    assert (chat.updated, chat.created) == (1_762_000_000_500, 1_761_000_000_250)
    assert content["messages"][0]["text"] == "[image]\n\nCold?"
    assert content["messages"][1]["model"] == "m"

    chat, content = read(own())
    assert (chat.folder, chat.pinned, content["settings"]["later"], content["messages"][1]["later"]) == (
        "work", True, [1], 2,
    )  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_comes_twice_has_the_same_ids(form: str) -> None:
    assert read(FORMS[form]())[0].id == read(FORMS[form]())[0].id
    assert len({read(FORMS[other]())[0].id for other in FORMS}) == len(FORMS)


@pytest.mark.parametrize(
    "body", [None, 1, "text", {}, [1], [[]], [{"messages": []}], {"chats": 1}, {"data": []}]
)
def test_what_is_no_export_is_refused_as_a_whole(body: object) -> None:
    with pytest.raises(InvalidRequest, match="no chat of jan-serve"):
        read_chats(body)


def test_more_chats_than_fit_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="10001 chats, the limit is 10000"):
        read_chats([own()] * 10_001)


def test_a_chat_that_cannot_be_stored_is_named_and_the_others_come() -> None:
    wrong = own() | {"title": "Wrong", "messages": [{"id": "q", "role": "bishop", "text": "x"}]}
    nameless = chatgpt() | {"title": "Nameless", "conversation_id": None}
    chats, refused = read_chats([wrong, own(), nameless])
    assert [chat.title for chat in chats] == ["Weather"]
    assert [each.title for each in refused] == ["Wrong", "Nameless"]
    assert "messages.0.role" in refused[0].reason and "no id" in refused[1].reason


VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    1e300,
    "",
    "x" * 300,
    [],
    {},
    [[]],
    {"a": {}},
    ["a"],
    {"content": 1},
    10**18,
)


def _keys(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return list(cast(dict[str, Any], value))
    return range(len(cast(list[Any], value))) if isinstance(value, list) else ()


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Each container within, with each of its keys."""
    found, waiting = list[tuple[Any, Any]](), [value]
    while waiting:
        item: Any = waiting.pop()
        for key in _keys(item):
            found.append((item, key))
            waiting.append(item[key])
    return found


@pytest.mark.parametrize("form", FORMS)
def test_no_value_at_any_place_is_a_failure_of_ours(form: str) -> None:
    whole = FORMS[form]()
    for at in range(len(_places(whole))):
        for value in VALUES:
            hostile = copy.deepcopy(whole)
            item, key = _places(hostile)[at]
            item[key] = copy.deepcopy(value)
            try:
                chats, refused = read_chats([hostile])
            except InvalidRequest:
                continue
            assert len(chats) + len(refused) == 1
            assert all(json.loads(chat.content)["messages"] is not None for chat in chats)


def test_any_two_wrong_values_are_no_failure_of_ours_either() -> None:
    draw = random.Random(7)
    for _ in range(300):
        hostile = FORMS[draw.choice([*FORMS])]()
        for _ in range(2):
            item, key = draw.choice(_places(hostile))
            item[key] = copy.deepcopy(draw.choice(VALUES))
        try:
            read_chats([hostile])
        except InvalidRequest:
            continue
