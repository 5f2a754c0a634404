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

    def _item_event(self, kind: str, item: Any) -> Event:
        return {"type": f"response.output_item.{kind}", "output_index": self._output_index, "item": item}


class _TextWriter(OpenItem):
    """An item whose one part is a text."""

    _part_kind = "content_part"
    _text_kind = "output_text"
    _index = "content_index"

    @abc.abstractmethod
    def _part(self) -> Any:
        """The part as it is now."""

    def _part_event(self, kind: str, **fields: Any) -> Event:
        return self._event(kind, **{self._index: 0}, **fields)

    def opening(self) -> Iterator[Event]:
        item: Any = self.item("in_progress")
        empty: dict[str, Any] = {name: [] for name in ("summary", "content") if name in item}
        yield self._item_event("added", {**item, **empty})
        yield self._part_event(f"{self._part_kind}.added", part=self._part())

    def closing(self, status: ItemStatus) -> Iterator[Event]:
        part = self._part()
        facts = {name: part[name] for name in ("text", "logprobs") if name in part}
        yield self._part_event(f"{self._text_kind}.done", **facts)
        yield self._part_event(f"{self._part_kind}.done", part=part)
        yield self._item_event("done", self.item(status))


class MessageWriter(_TextWriter):
    def __init__(self, place: Place, *, logprobs: bool) -> None:
        super().__init__("msg", place)
        self._wants_logprobs = logprobs
        self._logprobs: list[TokenLogprob] = []

    def more(self, text: str, tokens: tuple[TokenInfo, ...] = ()) -> Iterator[Event]:
        logprobs = chat_logprobs(tokens)["content"] or [] if self._wants_logprobs else []
        if text or logprobs:
            self._pieces.append(text)
            self._logprobs += logprobs
            yield self._part_event("output_text.delta", delta=text, logprobs=logprobs)

    def item(self, status: ItemStatus) -> OutputMessage:
        content = [self._part()]
        return {"id": self._id, "type": "message", "status": status, "role": "assistant", "content": content}

    def _part(self) -> OutputText:
        return {"type": "output_text", "text": self._text, "annotations": [], "logprobs": [*self._logprobs]}


class ThoughtWriter(_TextWriter):
    """A thought: in `summary` if the client asked for one, else in `content`."""

    def __init__(self, place: Place, *, as_summary: bool, packed: bool) -> None:
        super().__init__("rs", place)
        self._packed = packed
        self._as_summary = as_summary
        self._text_kind = "reasoning_text"
        if as_summary:
            self._part_kind, self._text_kind = "reasoning_summary_part", "reasoning_summary_text"
            self._index = "summary_index"

    def more(self, text: str, tokens: tuple[TokenInfo, ...] = ()) -> Iterator[Event]:
        if text:
            self._pieces.append(text)
            yield self._part_event(f"{self._text_kind}.delta", delta=text)

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


class CallWriter(OpenItem):
    """A call. The input of a custom tool is taken out of the arguments."""

    def __init__(self, place: Place, callee: Callee, call_id: str) -> None:
        super().__init__("ctc" if callee.custom else "fc", place)
        self._callee = callee
        self._call_id = call_id
        self._input = CustomInput() if callee.custom else None
        self._kind = "custom_tool_call_input" if callee.custom else "function_call_arguments"

    def opening(self) -> Iterator[Event]:
        yield self._item_event("added", self.item("in_progress"))

    def more(self, text: str, tokens: tuple[TokenInfo, ...] = ()) -> Iterator[Event]:
        yield from self._more(text if self._input is None else self._input.feed(text))

    def _more(self, piece: str) -> Iterator[Event]:
        if piece:
            self._pieces.append(piece)
            yield self._event(f"{self._kind}.delta", delta=piece)

    def closing(self, status: ItemStatus) -> Iterator[Event]:
        if self._input is None:
            yield self._event(f"{self._kind}.done", name=self._callee.name, arguments=self._text)
        else:
            yield from self._more(self._input.finish())
            yield self._event(f"{self._kind}.done", input=self._text)
        yield self._item_event("done", self.item(status))

    def item(self, status: ItemStatus) -> OutputItem:
        item: OutputFunctionCall | OutputCustomCall = (
            {
                "id": self._id,
                "type": "custom_tool_call",
                "status": status,
                "call_id": self._call_id,
                "name": self._callee.name,
                "input": self._text,
            }
            if self._callee.custom
            else {
                "id": self._id,
                "type": "function_call",
                "status": status,
                "call_id": self._call_id,
                "name": self._callee.name,
                "arguments": self._text,
            }
        )
        if self._callee.namespace is not None:
            item["namespace"] = self._callee.namespace
        return item
