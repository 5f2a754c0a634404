"""Exports of chats, our own and those of other pages, as chats to store. Pure.

Read are: llama.cpp's page (`conv` and `messages`), Open WebUI (`chat`), ChatGPT (`mapping`). Their ids become ours, so
that the same file brings nothing twice. Nothing in a file is trusted: what is not of the expected type is left out, and
the whole is judged as any other chat.
"""

from __future__ import annotations

import json
import math
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

import msgspec
from pydantic import ValidationError

from jan_serve.api.chats.branches import Node, line_of
from jan_serve.api.chats.wire import ID, MAX_TITLE, ExportedChat
from jan_serve.errors import InvalidRequest
from jan_serve.journal.chats import ChatToStore

MAX_CHATS: Final = 10_000
_OURS: Final = uuid.UUID("a3b7d5d8-5d0e-4f3c-9a5e-0d6f2f7f4c11")
_REASONING: Final = re.compile(
    r'<details type="reasoning"[^<>]*>\s*<summary>[^<]*</summary>(.*?)</details>\s*', re.S
)
_QUOTE: Final = re.compile(r"^> ?", re.M)
_SHOWN_ROLES: Final = frozenset({"user", "assistant", "tool"})


class Refused(msgspec.Struct, frozen=True):
    """A chat of a file that cannot be stored."""

    title: str
    reason: str


def read_chats(body: object) -> tuple[list[ChatToStore], list[Refused]]:
    """The chats of a file, the oldest first. Raises InvalidRequest for a file of another kind."""
    items: object = body
    if isinstance(body, dict):
        items = cast(dict[str, object], body).get("chats", cast(object, body))
    found = cast(list[object], items) if isinstance(items, list) else [items]
    if len(found) > MAX_CHATS:
        raise InvalidRequest(f"the file has {len(found)} chats, the limit is {MAX_CHATS} at a time")
    chats, refused = list[ChatToStore](), list[Refused]()
    for number, item in enumerate(found):
        own = _own_form(item)
        if own is None:
            raise InvalidRequest(
                f"[{number}]: is no chat of jan-serve, llama.cpp's page, Open WebUI or ChatGPT as these export them"
            )
        try:
            chats.append(_judged(own()))
        except InvalidRequest as error:
            refused.append(Refused(_title(item), error.message))
    # Files have the latest first.
    return sorted(reversed(chats), key=lambda chat: chat.updated or 0), refused


def exported_form(chat: ChatToStore) -> dict[str, Any]:
    """A chat in the form of an export."""
    facts = {name: getattr(chat, name) for name in ("id", "title", "folder", "pinned", "created", "updated")}
    return {**facts, **msgspec.json.decode(chat.content)}


def _judged(chat: Mapping[str, object]) -> ChatToStore:
    try:
        read = ExportedChat.model_validate(chat)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InvalidRequest(f"{place[:200]}: {first['msg']}") from None
    return read.written(read.id)


def _own_form(item: object) -> Callable[[], Mapping[str, object]] | None:
    """What makes our form of it; None for an unknown form."""
    if not isinstance(item, dict):
        return None
    chat = cast(dict[str, object], item)
    if isinstance(chat.get("conv"), dict):
        return lambda: _of_llama_cpp(chat)
    if isinstance(chat.get("mapping"), dict):
        return lambda: _of_chatgpt(chat)
    if isinstance(chat.get("chat"), dict):
        return lambda: _of_open_webui(chat)
    return (lambda: chat) if isinstance(chat.get("messages"), list) and "id" in chat else None


def _of_llama_cpp(item: Mapping[str, object]) -> Mapping[str, object]:
    conversation = _object(item, "conv")
    nodes, system = dict[str, Node](), ""
    for message in _objects(_list(item, "messages")):
        role, text = _text(message, "role"), _text(message, "content")
        if role == "system":
            system = system or text
        made = None
        if role in _SHOWN_ROLES and _text(message, "type") != "root":
            made = _message(message.get("id"), role, text)
            made |= _given(
                reasoning=_text(message, "reasoningContent") or _text(message, "thinking"),
                calls=_calls(_text(message, "toolCalls")),
                callId=_text(message, "toolCallId"),
                model=_text(message, "model") or _text(message, "model_name"),
                attachments=[*_llama_files(_list(message, "extra"))],
            )
        nodes[_name(message.get("id"))] = Node(_name(message.get("parent")), made)
    return {
        "id": _id("llama.cpp", conversation.get("id")),
        "title": _title(item),
        "updated": _ms(conversation.get("lastModified"), 1),
        "settings": {"system": system},
        "messages": line_of(_named(nodes), _name(conversation.get("currNode"))),
    }


def _llama_files(extra: list[object]) -> Iterable[dict[str, str]]:
    for file in _objects(extra):
        yield from _file(_text(file, "name"), _text(file, "base64Url"), _text(file, "content"))


def _file(name: str, image: str, text: str) -> Iterable[dict[str, str]]:
    """The attachment, if there is any content."""
    if image.startswith("data:image/"):
        yield {"kind": "image", "name": name or "file", "content": image}
    elif text:
        yield {"kind": "text", "name": name or "file", "content": text}


def _calls(text: str) -> list[dict[str, str]]:
    try:
        read: object = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return []
    return [
        {
            "id": _text(call, "id"),
            **{name: _text(call.get("function"), name) for name in ("name", "arguments")},
        }
        for call in _objects(cast(list[object], read) if isinstance(read, list) else [])
    ]


def _of_open_webui(item: Mapping[str, object]) -> Mapping[str, object]:
    chat = _object(item, "chat")
    history = _object(chat, "history")
    nodes = dict[str, Node]()
    known = _object(history, "messages")
    before = ""
    for message in _objects([*known.values()] if known else _list(chat, "messages")):
        role, text = _text(message, "role"), _text(message, "content")
        made = None
        if role in _SHOWN_ROLES:
            reasoning, answer = _apart(text)
            made = _message(message.get("id"), role, answer)
            made |= _given(
                reasoning=reasoning,
                model=_text(message, "model"),
                attachments=[*_webui_files(_list(message, "files"))],
            )
        name = _name(message.get("id"))
        nodes[name] = Node(_name(message.get("parentId")) if known else before, made)
        before = name
    params = _object(chat, "params")
    return {
        "id": _id("Open WebUI", item.get("id") or chat.get("id")),
        "title": _title(item),
        "pinned": item.get("pinned") is True,
        "created": _ms(item.get("created_at"), 1_000),
        "updated": _ms(item.get("updated_at"), 1_000),
        "settings": {"system": _text(params, "system") or _text(chat, "system")},
        "messages": line_of(_named(nodes), _name(history.get("currentId")) if known else before),
    }


def _apart(text: str) -> tuple[str, str]:
    """The reasoning in the text, and the text without it."""
    # Behind the last closer no reasoning ends: the pattern would read the rest again from each opener.
    before, closer, rest = text.rpartition("</details>")
    ended = before + closer + rest[: len(rest) - len(rest.lstrip())]
    reasoning = "\n\n".join(_QUOTE.sub("", part).strip() for part in _REASONING.findall(ended))
    return reasoning, _REASONING.sub("", ended) + text[len(ended) :]


def _webui_files(files: list[object]) -> Iterable[dict[str, str]]:
    for file in _objects(files):
        inner = _object(file, "file")
        name = _text(file, "name") or _text(inner, "filename")
        yield from _file(name, _text(file, "url"), _text(_object(inner, "data"), "content"))


def _of_chatgpt(item: Mapping[str, object]) -> Mapping[str, object]:
    nodes = dict[str, Node]()
    for name, value in _object(item, "mapping").items():
        message = _object(value, "message")
        facts = _object(message, "metadata")
        role = _text(_object(message, "author"), "role")
        text = _chatgpt_text(_object(message, "content"))
        is_shown = (
            role in ("user", "assistant")
            and _text(message, "recipient") in ("", "all")
            and facts.get("is_visually_hidden_from_conversation") is not True
            and text.strip() != ""
        )
        made = None
        if is_shown:
            made = _message(name, role, text) | _given(model=_text(facts, "model_slug"))
        nodes[name] = Node(_text(value, "parent"), made)
    return {
        "id": _id("ChatGPT", item.get("conversation_id") or item.get("id")),
        "title": _title(item),
        "created": _ms(item.get("create_time"), 1_000),
        "updated": _ms(item.get("update_time"), 1_000),
        "messages": line_of(_named(nodes), _name(item.get("current_node"))),
    }


def _chatgpt_text(content: Mapping[str, object]) -> str:
    match _text(content, "content_type"):
        case "text" | "multimodal_text":
            parts = list[str]()
            for part in _list(content, "parts"):
                kind = _text(part, "content_type")
                if isinstance(part, str):
                    parts.append(part)
                elif kind == "audio_transcription":
                    parts.append(_text(part, "text"))
                elif kind == "image_asset_pointer":
                    parts.append("[image]")
            return "\n\n".join(parts)
        case "code":
            return f"```\n{_text(content, 'text')}\n```"
        case _:
            return ""


def _message(name: object, role: str, text: str) -> dict[str, Any]:
    known = _name(name)
    return {"id": known if ID.fullmatch(known) else str(uuid.uuid5(_OURS, known)), "role": role, "text": text}


def _given(**members: object) -> dict[str, object]:
    """Those that are not empty."""
    return {name: value for name, value in members.items() if value}


def _named(nodes: dict[str, Node]) -> dict[str, Node]:
    """Without those that have no name: the empty one stands for the place before the first message."""
    return {name: node for name, node in nodes.items() if name}


def _title(item: object) -> str:
    for place in (item, _object(item, "conv"), _object(item, "chat")):
        title = _text(place, "title") or _text(place, "name")
        if title.strip():
            return title.strip()[:MAX_TITLE]
    return "New chat"


def _id(page: str, known: object) -> str:
    """Raises InvalidRequest without an id: the chat would come twice."""
    if not (name := _name(known)):
        raise InvalidRequest("it has no id")
    return str(uuid.uuid5(_OURS, f"{page}:{name}"))


def _name(value: object) -> str:
    """An id that may be a number."""
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _ms(value: object, scale: int) -> int | None:
    """Milliseconds, of a time in milliseconds (scale 1) or seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    ms = round(value * scale)
    return ms if 0 <= ms < 1 << 42 else None


def _text(value: object, name: str) -> str:
    """A member of an object; empty if there is none of this type."""
    member = _member(value, name)
    return member if isinstance(member, str) else ""


def _object(value: object, name: str) -> dict[str, object]:
    member = _member(value, name)
    return cast(dict[str, object], member) if isinstance(member, dict) else {}


def _list(value: object, name: str) -> list[object]:
    member = _member(value, name)
    return cast(list[object], member) if isinstance(member, list) else []


def _member(value: object, name: str) -> object:
    return cast(dict[str, object], value).get(name) if isinstance(value, dict) else None


def _objects(values: Iterable[object]) -> Iterable[dict[str, object]]:
    return (cast(dict[str, object], value) for value in values if isinstance(value, dict))
