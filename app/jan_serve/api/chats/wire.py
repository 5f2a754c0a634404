"""The form of a chat: as the page has it, and as it is stored and exported.

A message that was edited or generated again has its other versions, each with all that follows it. Members that this
version does not know are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from jan_serve.dialects.shared.wire_types import Between, FirstError, Int, WireModel, wrong
from jan_serve.http.replies import json_bytes
from jan_serve.journal.chats import ChatToStore

MAX_TITLE: Final = 200
MAX_MESSAGES: Final = 20_000
"""A chat has at most so many, all versions together."""
MAX_BRANCHES: Final = 24
"""Depth to which versions of a message stand within versions."""
MAX_AWAITED: Final = 16
_TIME: Final = Between(0, 1 << 42)
ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

Id = Annotated[str, StringConstraints(pattern=rf"^{ID.pattern}$")]
Title = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TITLE)]
Folder = Annotated[str, StringConstraints(max_length=100)]
Time = Annotated[Int, _TIME]


class _Open(WireModel):
    model_config = ConfigDict(extra="allow")


class Attachment(_Open):
    """kind: `image` or `text`. content: a data URL of the image, or the text."""

    kind: Annotated[str, StringConstraints(max_length=40)]
    name: str
    content: str


class ToolCall(_Open):
    """arguments: JSON, as the model wrote it."""

    id: str
    name: str
    arguments: str


class Message(_Open):
    """callId: of the call whose result it is. version: its number among its versions, from 0. versions: the others.

    response: the id of the response in the background that writes it; it is deleted once the message has its text.
    """

    id: Id
    role: Literal["user", "assistant", "tool"]
    text: str
    reasoning: str | None = None
    calls: Annotated[list[ToolCall], FirstError()] | None = None
    callId: str | None = None
    attachments: Annotated[list[Attachment], FirstError()] | None = None
    model: str | None = None
    finish: str | None = None
    response: Id | None = None
    error: str | None = None
    timings: dict[str, Any] | None = None
    warnings: Annotated[list[str], FirstError()] | None = None
    version: Annotated[Int, Between(0, MAX_MESSAGES)] | None = None
    versions: Annotated[list[Tail], FirstError()] | None = None


Tail = Annotated[list[Message], Field(min_length=1), FirstError()]


class ChatSettings(_Open):
    """system: the instructions. effort: of thinking; empty is the model's default. tools: JSON, or nothing."""

    system: str = ""
    temperature: float | None = None
    maxTokens: Int | None = None
    effort: str = ""
    tools: str = ""


class ChatContent(WireModel):
    """created, updated: milliseconds of the Unix epoch."""

    title: Title = "New chat"
    folder: Folder = ""
    pinned: bool = False
    created: Time | None = None
    updated: Time | None = None
    settings: ChatSettings = ChatSettings()
    messages: Annotated[list[Message], FirstError()]

    def written(self, chat_id: str) -> ChatToStore:
        """Raises InvalidRequest if it has too many messages, branches, or answers to come."""
        every = [*_walked(self.messages)]
        awaits = tuple(message.response for message in every if message.response is not None)
        if len(awaits) > MAX_AWAITED:
            raise wrong("messages", f"more than {MAX_AWAITED} items have a `response`")
        content = {
            "settings": self.settings.model_dump(),
            "messages": [message.model_dump(exclude_unset=True) for message in self.messages],
        }
        return ChatToStore(
            id=chat_id,
            title=self.title,
            folder=self.folder,
            pinned=self.pinned,
            created=self.created,
            updated=self.updated,
            messages=len(self.messages),
            content=json_bytes(content),
            text="\n".join(chain.from_iterable(map(_texts, every))),
            awaits=awaits,
        )


class PutChat(ChatContent):
    """version: the one that this was made from; 0 for a new chat, whose title and folder these are."""

    version: Annotated[Int, Between(0)] = 0


class ExportedChat(ChatContent):
    id: Id


class ChangeChat(WireModel):
    title: Title | None = None
    folder: Folder | None = None
    pinned: bool | None = None


class ChangeFolder(WireModel):
    """name: an empty one takes the chats out of the folder."""

    folder: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    name: Folder


class _ChatFacts(BaseModel):
    """Times in milliseconds of the Unix epoch. version: for the next `PUT`."""

    id: str
    title: str
    folder: str
    pinned: bool
    created: int
    updated: int
    version: int


class ChatHead(_ChatFacts):
    """A chat without its messages. messages: how many are shown. excerpt: where the words are that were sought."""

    messages: int
    excerpt: str = ""


class ChatList(BaseModel):
    """The latest first. before: names the next page; null if there is none.

    store: another one if the server has lost all chats; null if it keeps none.
    """

    data: list[ChatHead]
    before: int | None
    store: str | None


class Chat(_ChatFacts):
    settings: ChatSettings
    messages: list[Message]


class DeletedChat(BaseModel):
    """restorable_s: how long it can be restored."""

    id: str
    deleted: Literal[True]
    restorable_s: int


class FolderLine(BaseModel):
    name: str
    chats: int


class FolderList(BaseModel):
    data: list[FolderLine]


class ExportedChats(BaseModel):
    """before: names the next page; null if there is none."""

    chats: list[ExportedChat]
    before: int | None


class RefusedChat(BaseModel):
    title: str
    reason: str


class ImportedChats(BaseModel):
    """present: were there already, and are unchanged. chats: what was read, without `store`."""

    added: int
    present: int
    refused: list[RefusedChat]
    chats: list[ExportedChat] = []


def _texts(message: Message) -> Iterator[str]:
    yield message.text
    yield from (attachment.name for attachment in message.attachments or ())


def _walked(messages: list[Message]) -> Iterator[Message]:
    """The messages of all versions. Raises InvalidRequest beyond the limits."""
    seen = 0
    waiting = [(messages, 0)]
    while waiting:
        line, depth = waiting.pop()
        if depth > MAX_BRANCHES:
            raise wrong("messages", f"has more than {MAX_BRANCHES} versions within versions")
        for message in line:
            seen += 1
            if seen > MAX_MESSAGES:
                raise wrong("messages", f"has more than {MAX_MESSAGES} items with all versions")
            yield message
            waiting += ((tail, depth + 1) for tail in message.versions or ())
