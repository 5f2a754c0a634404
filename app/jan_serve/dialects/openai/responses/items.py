"""Builds the output items of an answer and their stream events. Pure.

An item opens, grows and closes; one is open at a time. Events have no sequence numbers yet.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

from jan_serve.core.events import TokenInfo
from jan_serve.core.transcript import random_uuid
from jan_serve.dialects.openai.chat.wire import TokenLogprob
from jan_serve.dialects.openai.render_common import chat_logprobs
from jan_serve.dialects.openai.responses.custom_input import CustomInput
from jan_serve.dialects.openai.responses.tools import Callee
from jan_serve.dialects.openai.responses.wire_reply import (
    Event,
    ItemStatus,
    OutputCustomCall,
    OutputFunctionCall,
    OutputItem,
    OutputMessage,
    OutputReasoning,
    OutputText,
    ReasoningPart,
)
from jan_serve.dialects.shared.thinking_fields import THOUGHT


def new_id(prefix: str) -> str:
    """A random id of 122 bits."""
    return f"{prefix}_{random_uuid().hex}"


class Place(NamedTuple):
    """Where an item is. A repeated answer has the same ids."""

    response_id: str
    output_index: int

    def id(self, prefix: str) -> str:
        text = f"{self.response_id} {self.output_index}"
        return f"{prefix}_{blake2b(text.encode(), digest_size=16).hexdigest()}"


class OpenItem(abc.ABC):
    """An output item under construction: id, output index and text."""

    def __init__(self, prefix: str, place: Place) -> None:
        self._id = place.id(prefix)
        self._output_index = place.output_index
        self._pieces: list[str] = []

    @abc.abstractmethod
    def opening(self) -> Iterator[Event]:
        """The events that announce it."""

    @abc.abstractmethod
    def more(self, text: str, tokens: tuple[TokenInfo, ...] = ()) -> Iterator[Event]:
        """The events of a piece."""

    @abc.abstractmethod
    def closing(self, status: ItemStatus) -> Iterator[Event]:
        """The events of its end."""

    @abc.abstractmethod
    def item(self, status: ItemStatus) -> OutputItem:
        """The item as it is now."""

    @property
    def _text(self) -> str:
        return "".join(self._pieces)

    def _event(self, kind: str, **fields: Any) -> Event:
        return {"type": f"response.{kind}", "item_id": self._id, "output_index": self._output_index, **fields}

    def _item_event(self, kind: str, item: OutputItem) -> Event:
        return {"type": f"response.output_item.{kind}", "output_index": self._output_index, "item": item}


class MessageWriter(OpenItem):
    def __init__(self, place: Place, *, logprobs: bool) -> None:
        super().__init__("msg", place)
        self._wants_logprobs = logprobs
        self._logprobs: list[TokenLogprob] = []

    def opening(self) -> Iterator[Event]:
        yield self._item_event("added", {**self.item("in_progress"), "content": []})
        yield self._event("content_part.added", content_index=0, part=self._part())

    def more(self, text: str, tokens: tuple[TokenInfo, ...] = ()) -> Iterator[Event]:
        logprobs = chat_logprobs(tokens)["content"] or [] if self._wants_logprobs else []
        if text or logprobs:
            self._pieces.append(text)
            self._logprobs += logprobs
            yield self._event("output_text.delta", content_index=0, delta=text, logprobs=logprobs)

    def closing(self, status: ItemStatus) -> Iterator[Event]:
        part = self._part()
        yield self._event("output_text.done", content_index=0, text=part["text"], logprobs=part["logprobs"])
        yield self._event("content_part.done", content_index=0, part=part)
        yield self._item_event("done", self.item(status))

    def item(self, status: ItemStatus) -> OutputMessage:
        return {
            "id": self._id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": [self._part()],
        }

    def _part(self) -> OutputText:
        return {"type": "output_text", "text": self._text, "annotations": [], "logprobs": [*self._logprobs]}


class ThoughtWriter(OpenItem):
    """A thought: in `summary` if the client asked for one, else in `content`."""

    def __init__(self, place: Place, *, as_summary: bool, packed: bool) -> None:
        super().__init__("rs", place)
        self._packed = packed
        self._as_summary = as_summary
        self._part_kind = "reasoning_summary_part" if as_summary else "content_part"
        self._text_kind = "reasoning_summary_text" if as_summary else "reasoning_text"
        self._index = {"summary_index" if as_summary else "content_index": 0}

    def opening(self) -> Iterator[Event]:
        empty: OutputReasoning = {**self.item("in_progress"), "summary": [], "content": []}
        yield self._item_event("added", empty)
        yield self._event(f"{self._part_kind}.added", **self._index, part=self._part())

    def more(self, text: str, tokens: tuple[TokenInfo, ...] = ()) -> Iterator[Event]:
        if text:
            self._pieces.append(text)
            yield self._event(f"{self._text_kind}.delta", **self._index, delta=text)

    def closing(self, status: ItemStatus) -> Iterator[Event]:
        part = self._part()
        yield self._event(f"{self._text_kind}.done", **self._index, text=part["text"])
        yield self._event(f"{self._part_kind}.done", **self._index, part=part)
        yield self._item_event("done", self.item(status))

    def item(self, status: ItemStatus) -> OutputReasoning:
        parts = [self._part()]
        item: OutputReasoning = {
            "id": self._id,
            "type": "reasoning",
            "status": status,
            "summary": parts if self._as_summary else [],
            "content": [] if self._as_summary else parts,
        }
        if self._packed:
            item["encrypted_content"] = THOUGHT.packed(self._text)
        return item

    def _part(self) -> ReasoningPart:
        return {"type": "summary_text" if self._as_summary else "reasoning_text", "text": self._text}


class FunctionCallWriter(OpenItem):
    def __init__(self, place: Place, callee: Callee, call_id: str) -> None:
        super().__init__("fc", place)
        self._callee = callee
        self._call_id = call_id

    def opening(self) -> Iterator[Event]:
        yield self._item_event("added", self.item("in_progress"))

    def more(self, text: str, tokens: tuple[TokenInfo, ...] = ()) -> Iterator[Event]:
        if text:
            self._pieces.append(text)
            yield self._event("function_call_arguments.delta", delta=text)

    def closing(self, status: ItemStatus) -> Iterator[Event]:
        yield self._event("function_call_arguments.done", name=self._callee.name, arguments=self._text)
        yield self._item_event("done", self.item(status))

    def item(self, status: ItemStatus) -> OutputFunctionCall:
        item: OutputFunctionCall = {
            "id": self._id,
            "type": "function_call",
            "status": status,
            "call_id": self._call_id,
            "name": self._callee.name,
            "arguments": self._text,
        }
        if self._callee.namespace is not None:
            item["namespace"] = self._callee.namespace
        return item


class CustomCallWriter(OpenItem):
    """A call of a custom tool: extracts its input from the arguments."""

    def __init__(self, place: Place, callee: Callee, call_id: str) -> None:
        super().__init__("ctc", place)
        self._callee = callee
        self._call_id = call_id
        self._input = CustomInput()

    def opening(self) -> Iterator[Event]:
        yield self._item_event("added", self.item("in_progress"))

    def more(self, text: str, tokens: tuple[TokenInfo, ...] = ()) -> Iterator[Event]:
        yield from self._delta(self._input.feed(text))

    def closing(self, status: ItemStatus) -> Iterator[Event]:
        yield from self._delta(self._input.finish())
        yield self._event("custom_tool_call_input.done", input=self._input.value)
        yield self._item_event("done", self.item(status))

    def item(self, status: ItemStatus) -> OutputCustomCall:
        item: OutputCustomCall = {
            "id": self._id,
            "type": "custom_tool_call",
            "status": status,
            "call_id": self._call_id,
            "name": self._callee.name,
            "input": self._input.value,
        }
        if self._callee.namespace is not None:
            item["namespace"] = self._callee.namespace
        return item

    def _delta(self, piece: str) -> Iterator[Event]:
        if piece:
            yield self._event("custom_tool_call_input.delta", delta=piece)
