"""Turns the items of a conversation into chat messages. Pure.

Several items (a thought, text, calls) of one turn become one assistant message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from jan_serve.api.dialects.openai.responses.custom_input import custom_arguments
from jan_serve.api.dialects.openai.responses.tools import flat_name
from jan_serve.api.dialects.openai.responses.wire_items import (
    CallOutputItem,
    ContentPart,
    CustomCallItem,
    FunctionCallItem,
    HostedItem,
    InputItem,
    MediaPart,
    MessageItem,
    ReasoningItem,
    RefusalPart,
    TextPart,
)
from jan_serve.api.shared.packed_thoughts import unpacked_thought
from jan_serve.core.messages import FunctionCall, Message, ToolCall
from jan_serve.errors import InvalidRequest, UnsupportedContent

IMAGE_NOTE: Final = "(The tool gave an image here, and this model reads text only.)"


class History:
    """Collects items in order. warnings: what was left out."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.warnings: list[str] = []
        # The assistant message that the next assistant item joins.
        self._turn: Message | None = None

    def add(self, items: Sequence[InputItem], field: str = "input") -> None:
        """field: source of the items, for error messages. Raises UnsupportedContent and InvalidRequest."""
        for index, item in enumerate(items):
            self._add(item, f"{field}[{index}]")

    def finished(self) -> tuple[Message, ...]:
        self._end_turn()
        return tuple(self.messages)

    def _add(self, item: InputItem, where: str) -> None:
        match item:
            case MessageItem(role="assistant"):
                self._add_text(_content(item.content, f"{where}.content"))
            case MessageItem():
                role = "user" if item.role == "user" else "system"
                self._append(Message(role=role, content=_content(item.content, f"{where}.content")))
            case ReasoningItem():
                self._add_thought(_thought(item))
            case FunctionCallItem():
                self._add_call(item.call_id, flat_name(item.namespace, item.name), item.arguments)
            case CustomCallItem():
                self._add_call(
                    item.call_id, flat_name(item.namespace, item.name), custom_arguments(item.input)
                )
            case CallOutputItem():
                content = self._output(item, f"{where}.output")
                self._append(Message(role="tool", content=content, tool_call_id=item.call_id))
            case HostedItem():
                self.warnings.append(f"{where}: {item.type} means nothing to this server, and was left out")
            case _:
                raise InvalidRequest(f"{where}: the item {item.id[:80]!r} is not kept here", param="input")

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

    def _output(self, item: CallOutputItem, where: str) -> str:
        """The result of a call. A note replaces an image, since rejecting it would end the conversation."""
        if isinstance(item.output, str):
            return item.output
        texts: list[str] = []
        for index, part in enumerate(item.output):
            if isinstance(part, MediaPart) and part.type == "input_image":
                self.warnings.append(f"{where}[{index}]: models here read text only, the image was left out")
                texts.append(IMAGE_NOTE)
            else:
                texts.append(_part(part, f"{where}[{index}]"))
        return "".join(texts)


def _content(content: str | list[ContentPart], where: str) -> str:
    if isinstance(content, str):
        return content
    return "".join(_part(part, f"{where}[{index}]") for index, part in enumerate(content))


def _part(part: ContentPart, where: str) -> str:
    match part:
        case TextPart():
            return part.text
        case RefusalPart():
            return part.refusal
        case MediaPart():
            raise UnsupportedContent(
                f"{where}: models here read text only, and this is {part.type}", param="input"
            )


def _thought(item: ReasoningItem) -> str:
    """The text of a thought, from `encrypted_content`, else `content`, else `summary`."""
    packed = unpacked_thought(item.encrypted_content)
    if packed is not None:
        return packed
    if item.content:
        return "".join(part.text for part in item.content)
    return "\n\n".join(part.text for part in item.summary)
