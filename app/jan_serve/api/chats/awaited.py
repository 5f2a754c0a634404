"""Answers that chats wait for: a message names its response in the background until its text is in the chat.

Whoever reads chats puts in what has ended since, so that an answer whose page was closed is found as any other one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from http import HTTPStatus
from typing import Any, Final

import msgspec

from jan_serve.api.chats.wire import PutChat
from jan_serve.core.caller import cache_salt
from jan_serve.errors import StoreError
from jan_serve.journal.batches import Reply
from jan_serve.journal.chats import ChatTable, Conflict

logger = logging.getLogger(__name__)

Ask = Callable[[str, str], Awaitable[Reply]]
"""Answers a request of the caller to this server: a method and a path."""

_RESPONSES: Final = "/v1/responses"
_RUNNING: Final = frozenset({"queued", "in_progress"})
_LOST: Final[dict[str, Any]] = {
    "status": "failed",
    "output": [],
    "error": {"message": "The server no longer has this answer."},
}


class AwaitedResponses:
    """The responses that chats of the current caller wait for. Each is deleted once its chat has the text."""

    def __init__(self, table: ChatTable, ask: Ask) -> None:
        self._table = table
        self._ask = ask

    async def put_in(self, chat_id: str | None = None) -> None:
        """Put what has ended into this chat, or into each that waits. Raises as Journal.run if they cannot be read."""
        found = await self._table.waiting(cache_salt.get()) if chat_id is None else [chat_id]
        for each in found:
            await self._put_in(each)

    async def cancel(self, chat_id: str) -> None:
        """End what the chat waits for. What is written so far is put in."""
        for response in await self._table.awaits(cache_salt.get(), chat_id):
            await self._ask("POST", f"{_RESPONSES}/{response}/cancel")
        await self._put_in(chat_id)

    async def forget(self, responses: set[str]) -> None:
        """Delete responses that their chat does not wait for."""
        for response in sorted(responses):
            await self._ask("DELETE", f"{_RESPONSES}/{response}")

    async def _put_in(self, chat_id: str) -> None:
        owner = cache_salt.get()
        ended = dict[str, dict[str, Any]]()
        for response in await self._table.awaits(owner, chat_id):
            if (body := await self._ended(response)) is not None:
                ended[response] = body
        stored = await self._table.find(owner, chat_id) if ended else None
        # A page that wrote meanwhile may have put them in.
        if stored is None or ended.keys().isdisjoint(stored.awaits):
            return
        content = msgspec.json.decode(stored.content)
        for message in _all_messages(content["messages"]):
            if (body := ended.get(message.get("response", ""))) is not None:
                _fill(message, body)
        times = [round(body.get("completed_at") or 0) * 1_000 for body in ended.values()]
        head = {"title": stored.head.title, "updated": max(stored.head.updated, *times)}
        chat = PutChat.model_validate({**content, **head}).written(chat_id)
        try:
            # Where another page writes it at this moment, the next reader puts in what is missing then.
            if not isinstance(await self._table.put(owner, chat, stored.head.version), Conflict):
                await self.forget({*ended})
        except StoreError as error:
            logger.warning("an answer is not put into its chat yet: %s", error.message)

    async def _ended(self, response: str) -> dict[str, Any] | None:
        """The response; None while it is written, or cannot be read."""
        reply = await self._ask("GET", f"{_RESPONSES}/{response}")
        if reply.status == HTTPStatus.NOT_FOUND:
            return _LOST
        body = msgspec.json.decode(reply.body) if reply.status == HTTPStatus.OK else None
        return None if body is None or body["status"] in _RUNNING else body


def _all_messages(line: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The messages of all versions."""
    waiting = [line]
    while waiting:
        for message in waiting.pop():
            yield message
            waiting += message.get("versions") or ()


def _fill(message: dict[str, Any], body: dict[str, Any]) -> None:
    """Give the message what the page makes of the response's events."""
    del message["response"]
    if body is _LOST:
        message["error"] = body["error"]["message"]
        return
    items: list[dict[str, Any]] = body["output"]
    parts = [part for item in items for part in item.get("content") or ()]
    message["text"] = "".join(part["text"] for part in parts if part["type"] == "output_text")
    calls = [
        {"id": item["call_id"], "name": item["name"], "arguments": item["arguments"]}
        for item in items
        if item["type"] == "function_call"
    ]
    error: dict[str, Any] = body["error"] or {}
    facts: dict[str, Any] = {
        "reasoning": "".join(part["text"] for part in parts if part["type"] == "reasoning_text"),
        "calls": calls,
        "timings": body.get("timings"),
        "warnings": body.get("warnings"),
        "finish": _finish(body, has_calls=bool(calls)),
        "error": error.get("message"),
    }
    message |= {name: value for name, value in facts.items() if value}


def _finish(body: dict[str, Any], *, has_calls: bool) -> str | None:
    match body["status"]:
        case "completed":
            return "tool_calls" if has_calls else "stop"
        case "cancelled":
            return "stopped"
        case "incomplete":
            details: dict[str, Any] = body["incomplete_details"] or {}
            return "length" if details.get("reason") else "stop"
        case _:
            return None
