"""Responses request → GenerationRequest; the items of its conversation become chat messages. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import msgspec

from jan_serve.core import messages as core
from jan_serve.core.messages import IMAGE_NOTE, FunctionCall, Message, ToolCall
from jan_serve.core.request import ChatPrompt, GenerationRequest
from jan_serve.dialects.openai.chat.wire import RefusalPart, TextPart
from jan_serve.dialects.openai.parse_common import (
    check_metadata,
    document_part,
    reasoning_budget,
    request_of,
    stop_conditions,
    template_kwargs,
)
from jan_serve.dialects.openai.responses import wire
from jan_serve.dialects.openai.responses.custom_input import custom_arguments
from jan_serve.dialects.openai.responses.tools import ToolBook, flat_name
from jan_serve.dialects.shared.thinking_fields import SUMMARY, THOUGHT, UNREAD_THOUGHT
from jan_serve.dialects.shared.wire_types import wrong
from jan_serve.errors import InvalidRequest, UnsupportedContent


class History:
    """Collects items in order. warnings: what was left out."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.warnings: list[str] = []
        # The assistant message that the next assistant item joins.
        self._turn: Message | None = None

    def add(self, items: Sequence[wire.InputItem], field: str = "input") -> None:
        """field: source of the items, for error messages. Raises UnsupportedContent and InvalidRequest."""
        for index, item in enumerate(items):
            self._add(item, f"{field}[{index}]")

    def finished(self) -> tuple[Message, ...]:
        self._end_turn()
        return tuple(self.messages)

    def _add(self, item: wire.InputItem, where: str) -> None:
        match item:
            case wire.MessageItem(role="assistant"):
                self._add_text(_text(item.content, f"{where}.content"))
            case wire.MessageItem():
                role = "user" if item.role == "user" else "system"
                self._append(Message(role=role, content=_content(item.content, f"{where}.content")))
            case wire.ReasoningItem():
                thought = _thought(item)
                if item.encrypted_content and not thought:
                    self.warnings.append(f"{where}: {UNREAD_THOUGHT}")
                self._add_thought(thought)
            case wire.FunctionCallItem():
                self._add_call(item.call_id, flat_name(item.namespace, item.name), item.arguments)
            case wire.CustomCallItem():
                self._add_call(
                    item.call_id, flat_name(item.namespace, item.name), custom_arguments(item.input)
                )
            case wire.CallOutputItem():
                # Rejecting an image would end the conversation.
                content = _content(item.output, f"{where}.output", note=IMAGE_NOTE)
                self._append(Message(role="tool", content=content, tool_call_id=item.call_id))
            case wire.ComputerCallItem():
                done = {"actions": item.actions} if item.actions else item.action or {}
                self._add_call(item.call_id, "computer", json.dumps(done, ensure_ascii=False))
            case wire.ComputerOutputItem():
                shot = _image(item.output.image_url, f"{where}.output.image_url", IMAGE_NOTE)
                self._append(Message(role="tool", content=(shot,), tool_call_id=item.call_id))
            case wire.CompactionItem():
                self._add_summary(item, where)
            case wire.HostedItem():
                self.warnings.append(f"{where}: {item.type} means nothing to this server, and was left out")
            case _:
                raise InvalidRequest(f"{where}: the item {item.id[:80]!r} is not kept here", param="input")

    def _add_summary(self, item: wire.CompactionItem, where: str) -> None:
        summary = SUMMARY.unpacked(item.encrypted_content)
        if summary is None:
            self.warnings.append(f"{where}: another server made this compaction, and it was left out")
        else:
            self._append(Message(role="user", content=f"Summary of the conversation so far:\n\n{summary}"))

    def _append(self, message: Message) -> None:
        self._end_turn()
        self.messages.append(message)

    def _end_turn(self) -> None:
        if self._turn is not None:
            self.messages.append(self._turn)
            self._turn = None

    def _add_thought(self, text: str) -> None:
        if not text:
            return
        turn = self._turn
        if turn is None or turn.content or turn.tool_calls:
            self._end_turn()
            turn = Message(role="assistant")
        thought = "\n\n".join(part for part in (turn.reasoning_content, text) if part)
        self._turn = msgspec.structs.replace(turn, reasoning_content=thought)

    def _add_text(self, text: str) -> None:
        turn = self._turn
        if turn is None or (turn.content is not None and not turn.tool_calls):
            self._end_turn()
            turn = Message(role="assistant")
        before = turn.content if isinstance(turn.content, str) else ""
        self._turn = msgspec.structs.replace(turn, content=before + text)

    def _add_call(self, call_id: str, name: str, arguments: str) -> None:
        turn = self._turn or Message(role="assistant")
        calls = (*turn.tool_calls, ToolCall(call_id, FunctionCall(name, arguments)))
        self._turn = msgspec.structs.replace(turn, tool_calls=calls)


def _text(content: str | list[wire.ContentPart], where: str) -> str:
    """Raises UnsupportedContent for an image."""
    found = _content(content, where)
    if not isinstance(found, str):
        raise UnsupportedContent(f"{where}: an assistant's message is text", param="input")
    return found


def _content(
    content: str | list[wire.ContentPart], where: str, note: str | None = None
) -> str | tuple[core.ContentPart, ...]:
    """A text if there are no images. note: see core.messages.ImagePart."""
    if isinstance(content, str):
        return content
    found: list[core.ContentPart] = []
    for index, part in enumerate(content):
        read = _part(part, f"{where}[{index}]", note)
        if found and isinstance(read, core.TextPart) and isinstance(found[-1], core.TextPart):
            found[-1] = core.TextPart(found[-1].text + read.text)
        else:
            found.append(read)
    match found:
        case []:
            return ""
        case [core.TextPart(text)]:
            return text
        case _:
            return tuple(found)


def _part(part: wire.ContentPart, where: str, note: str | None) -> core.ContentPart:
    match part:
        case TextPart():
            return core.TextPart(part.text)
        case RefusalPart():
            return core.TextPart(part.refusal)
        case wire.ImagePart():
            return _image(part.image_url, f"{where}.image_url", note)
        case wire.FilePart():
            return document_part(
                part.file_data, part.filename, f"{where}.file_data", of_result=note is not None
            )
        case wire.MediaPart():
            raise UnsupportedContent(f"{where}: content of type {part.type} is not supported", param="input")


def _image(url: str | None, where: str, note: str | None) -> core.ImagePart:
    if url is None:
        raise UnsupportedContent(
            f"{where}: an image needs a data URL or a URL; this server keeps no files", param=where
        )
    return core.ImagePart(url, where, note)


def _thought(item: wire.ReasoningItem) -> str:
    """The text of a thought, from `encrypted_content`, else `content`, else `summary`."""
    packed = THOUGHT.unpacked(item.encrypted_content)
    if packed is not None:
        return packed
    if item.content:
        return "".join(part.text for part in item.content)
    return "\n\n".join(part.text for part in item.summary)


LOGPROBS: Final = "message.output_text.logprobs"
ENCRYPTED_THOUGHTS: Final = "reasoning.encrypted_content"

_UNSUPPORTED: Final = {
    "conversation": "there are no stored conversations; previous_response_id goes on from an answer",
    "prompt": "there are no stored prompts",
}
"""Fields that cannot be ignored, and why they are rejected."""


class ParsedResponse(msgspec.Struct, frozen=True):
    """tools: maps calls back to the client's tools."""

    generation: GenerationRequest
    tools: ToolBook


def response_request(
    body: wire.CreateResponseRequest, previous: Sequence[wire.InputItem], items: Sequence[wire.InputItem]
) -> ParsedResponse:
    """previous: the conversation of `previous_response_id`. items: of the body, with references resolved.

    Raises InvalidRequest.
    """
    for field, reason in _UNSUPPORTED.items():
        if getattr(body, field):
            raise wrong(field, f"not on this server: {reason}")
    if body.background and not body.store:
        raise InvalidRequest("background: such an answer is stored, and `store` is false", param="store")
    check_metadata(body.metadata)
    history = History()
    history.add(previous, "previous_response_id")
    history.add(items)
    messages = history.finished()
    if body.instructions:
        messages = (Message(role="system", content=body.instructions), *messages)
    if not messages:
        raise wrong("input", "at least one message is needed")
    book = ToolBook(body.tools)
    tools, choice = book.chosen(body.tool_choice)
    warnings = [*history.warnings, *book.warnings]
    if body.truncation == "auto":
        warnings.append("truncation: nothing is left out of a conversation that is too long; it is refused")
    generation = request_of(
        body,
        ChatPrompt(
            messages=messages,
            tools=tools,
            tool_choice=choice,
            parallel_tool_calls=body.parallel_tool_calls,
            reasoning_budget=reasoning_budget(body, body.reasoning.effort),
            template_kwargs=template_kwargs(body, body.reasoning.effort),
        ),
        stop_conditions(body, body.max_output_tokens),
        logprobs=_logprobs(body),
        warnings=tuple(warnings),
    )
    return ParsedResponse(generation, book)


def _logprobs(body: wire.CreateResponseRequest) -> int | None:
    if body.top_logprobs:
        return body.top_logprobs
    return 0 if LOGPROBS in body.include else None
