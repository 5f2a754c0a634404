"""A chat of the terminal among the chats of the server, where the page shows it, too."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from jan_serve.cli.chat.conversation import Conversation, Message
from jan_serve.cli.client.server_client import ChatChanged, ServerClient
from jan_serve.cli.errors import CommandError, WrongUse
from jan_serve.cli.output import output

_TRIES: Final = 5
_TITLE: Final = 48
_LEAST_ID: Final = 4
CHATS_PATH: Final = "/extras/chats"

StoredMessage = dict[str, Any]
"""A message in the page's form: see docs/chats.md."""


class KeptChat(msgspec.Struct):
    """line: what is stored. sent: the same as messages of requests."""

    client: ServerClient
    id: str = msgspec.field(default_factory=lambda: str(uuid.uuid4()))
    version: int = 0
    settings: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    line: list[StoredMessage] = msgspec.field(default_factory=list[StoredMessage])
    sent: list[Message] = msgspec.field(default_factory=list[Message])

    def save(self, conversation: Conversation) -> None:
        """Store what is new since the last call. What was taken back stays, as another version of what replaced it.

        Raises CommandError.
        """
        now = conversation.messages
        same = _common(self.sent, now)
        if same == len(now):
            return
        if same == 0 and self.sent:
            self.id, self.version, self.line, self.sent = str(uuid.uuid4()), 0, [], []
        new = [_stored(message, conversation.model) for message in now[same:]]
        settings = {**self.settings, "system": conversation.system or ""}
        line = _grafted(self.line, same, new)
        for _ in range(_TRIES):
            body = {"version": self.version, "title": _title(line), "settings": settings, "messages": line}
            try:
                self.version = self.client.put(f"{CHATS_PATH}/{self.id}", body)["version"]
                break
            except ChatChanged:
                line = self._joined(line, same, new)
        else:
            raise CommandError("The chat is not kept: other pages keep changing it.")
        self.line, self.sent = line, [*now]

    def _joined(
        self, line: Sequence[StoredMessage], same: int, new: list[StoredMessage]
    ) -> list[StoredMessage]:
        """The new messages after what this chat and the present one on the server have in common."""
        try:
            found = self.client.get(f"{CHATS_PATH}/{self.id}")
        except CommandError:  # deleted: what is here is a new chat
            self.id, self.version = str(uuid.uuid4()), 0
            return [*line]
        self.version = found["version"]
        theirs: list[StoredMessage] = found["messages"]
        common = _common([each["id"] for each in self.line[:same]], [each["id"] for each in theirs])
        # Where they show another version, this one comes beside it.
        missed = [{**each, "id": str(uuid.uuid4())} for each in self.line[common:same]]
        return _grafted(theirs, common, [*missed, *new])


def kept_chat(
    client: ServerClient,
    wanted: str | None,
    conversation: Conversation,
    note: Callable[[str], None] = lambda text: None,
) -> KeptChat | None:
    """The chat of this id, or with "" the latest, whose messages become those of the conversation; with None a new
    one.
    None: this server keeps no chats. note: says what is waited for. Raises CommandError for a wanted one that is not
    there."""
    try:
        store = client.get(CHATS_PATH, {"limit": "1"})["store"]
    except CommandError:
        if wanted is None:
            return None
        raise
    if store is None and wanted is None:
        return None
    if wanted is None:
        return KeptChat(client)
    path = f"{CHATS_PATH}/{quote(find_chat(client, wanted)['id'], safe='')}"
    chat = client.get(path)
    if growing := [message for message in chat["messages"] if message.get("response")]:
        note("The server still writes an answer of this chat.")
        for message in growing:
            for _ in text_of(client, message):
                pass
        chat = client.get(path)
    kept = KeptChat(client, chat["id"], chat["version"], chat["settings"], chat["messages"])
    kept.sent = [_sent(message) for message in kept.line]
    conversation.messages = [*kept.sent]
    conversation.system = conversation.system or chat["settings"].get("system") or None
    return kept


def text_of(client: ServerClient, message: StoredMessage) -> Iterator[str]:
    """The text of a message: in one piece, or piece by piece while the server writes it."""
    if not message.get("response"):
        yield message["text"]
        return
    path = f"/v1/responses/{quote(message['response'], safe='')}"
    for event in client.events(path, params={"stream": "true"}):
        if event.get("type") == "response.output_text.delta":
            yield event["delta"]


def show_messages(client: ServerClient, messages: Sequence[StoredMessage]) -> None:
    """Print the messages. One that the server still writes comes piece by piece."""
    for message in messages:
        sign = {"user": ">>> ", "tool": "<<< "}.get(message["role"], "")
        files = "".join(f"[{file['name']}] " for file in message.get("attachments") or ())
        output.piece(f"{sign}{files}")
        for piece in text_of(client, message):
            output.piece(piece)
        output.piece("\n\n")


def find_chat(client: ServerClient, wanted: str) -> dict[str, Any]:
    """The chat whose id begins like this; the latest for "". Raises CommandError unless there is exactly one."""
    found = [chat for chat in all_chats(client, 1 if not wanted else None) if chat["id"].startswith(wanted)]
    exact = [chat for chat in found if chat["id"] == wanted]
    found = exact or found
    if not found:
        words = f"There is no chat {wanted!r}." if wanted else "There is no chat yet."
        raise WrongUse(words, "`jan-serve chats` lists them.")
    if wanted and not exact and (len(found) > 1 or len(wanted) < _LEAST_ID):
        raise WrongUse(
            f"{wanted!r} is too short for an id: {len(found)} chats begin so.",
            "`jan-serve chats` lists them.",
        )
    return found[0]


def all_chats(client: ServerClient, limit: int | None, **query: str) -> list[dict[str, Any]]:
    """The latest first. limit: None for all of them."""
    chats, before = list[dict[str, Any]](), ""
    while limit is None or len(chats) < limit:
        size = 200 if limit is None else min(200, limit - len(chats))
        page = client.get(CHATS_PATH, {"limit": str(size), **query, **({"before": before} if before else {})})
        chats += page["data"]
        if page["before"] is None:
            break
        before = str(page["before"])
    return chats


def _grafted(line: Sequence[StoredMessage], at: int, new: list[StoredMessage]) -> list[StoredMessage]:
    """The line with these messages from a place on; what was there is another version of the first of them."""
    if at >= len(line):
        return [*line[:at], *new]
    old = {name: value for name, value in line[at].items() if name != "versions"}
    versions = [*line[at].get("versions", []), [old, *line[at + 1 :]]]
    number = max(tail[0].get("version", 0) for tail in versions) + 1
    return [*line[:at], {**new[0], "version": number, "versions": versions}, *new[1:]]


def _common(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many items both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def _title(line: Sequence[StoredMessage]) -> str:
    text = next(
        (each["text"] for each in line if each["role"] == "user" and each["text"].strip()), "New chat"
    )
    first = text.strip().split("\n")[0]
    return first if len(first) <= _TITLE else first[: _TITLE - 1] + "…"


def _stored(message: Message, model: str) -> StoredMessage:
    content: str | list[dict[str, Any]] = message["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    facts: dict[str, Any] = {
        "attachments": [_attachment(part) for part in parts if part["type"] != "text"],
        "calls": [{"id": call["id"], **call["function"]} for call in message.get("tool_calls", ())],
        "callId": message.get("tool_call_id"),
    }
    if message["role"] == "assistant":
        facts |= {"model": model, "finish": "stop"}
    return {
        "id": str(uuid.uuid4()),
        "role": message["role"],
        "text": "\n\n".join(part["text"] for part in parts if part["type"] == "text"),
        **{name: value for name, value in facts.items() if value},
    }


def _attachment(part: dict[str, Any]) -> dict[str, str]:
    if part["type"] == "image_url":
        return {"kind": "image", "name": "image", "content": part["image_url"]["url"]}
    return {"kind": "document", "name": part["file"]["filename"], "content": part["file"]["file_data"]}


def _sent(message: StoredMessage) -> Message:
    role, text = message["role"], message["text"]
    if role == "tool":
        return {"role": role, "tool_call_id": message.get("callId") or "", "content": text}
    if role == "assistant":
        calls = [
            {
                "id": each["id"],
                "type": "function",
                "function": {name: each[name] for name in ("name", "arguments")},
            }
            for each in message.get("calls") or ()
        ]
        return {"role": role, "content": text, **({"tool_calls": calls} if calls else {})}
    files = message.get("attachments") or ()
    texts = [f"{file['name']}:\n\n{file['content']}" for file in files if file["kind"] == "text"]
    parts = [_part(file) for file in files if file["kind"] != "text"]
    whole = "\n\n".join([*texts, text])
    return {"role": role, "content": [*parts, {"type": "text", "text": whole}] if parts else whole}


def _part(file: dict[str, str]) -> dict[str, Any]:
    if file["kind"] == "image":
        return {"type": "image_url", "image_url": {"url": file["content"]}}
    return {"type": "file", "file": {"filename": file["name"], "file_data": file["content"]}}
