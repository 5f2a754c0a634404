"""Renders an answer of /v1/messages, as a stream and whole. Pure, except for the injected id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

from jan_serve.chat.call_arguments import object_arguments
from jan_serve.core.events import (
    Completed,
    Finished,
    GenerationEvent,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolCallDelta,
)
from jan_serve.core.events import Usage as CoreUsage
from jan_serve.dialects.anthropic.messages.conversation import signature_of
from jan_serve.dialects.anthropic.messages.wire import (
    ContentBlock,
    Event,
    MessageBody,
    MessageUsage,
    StopReason,
)

PING: Final = b'event: ping\ndata: {"type":"ping"}\n\n'
_PLAIN_ID: Final = "call_"


class _OpenBlock(msgspec.Struct):
    """The block that grows. id, name: of a call."""

    kind: Literal["text", "thinking", "tool_use"]
    id: str = ""
    name: str = ""
    pieces: list[str] = msgspec.field(default_factory=list[str])

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class MessageEvents:
    """The stream: the head, the events of each block, then the stop reason and the usage."""

    def __init__(self, message_id: str, model: str, *, shows_thoughts: bool = True) -> None:
        """model: the name in the request: clients drop thoughts of messages with another one."""
        self._shows_thoughts = shows_thoughts
        self._open: _OpenBlock | None = None
        self.message: MessageBody = {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(CoreUsage()),
        }

    def add(self, event: GenerationEvent) -> None:
        for _ in self.chunks(event):
            pass

    def body(self) -> MessageBody:
        return self.message

    def chunks(self, event: GenerationEvent) -> Iterator[Event]:
        match event:
            case Started(prompt_tokens=count):
                # Which of them are in the cache is known once they are computed.
                self.message["usage"] = _usage(CoreUsage(prompt_tokens=count))
                yield {"type": "message_start", "message": {**self.message, "content": []}}
            case TextDelta(text=text) if text:
                yield from self._more("text", text)
            case ReasoningDelta(text=text) if text:
                yield from self._more("thinking", text)
            case ToolCallDelta() as delta:
                yield from self._call(delta)
            case Finished() as finished:
                yield from self._close()
                self.message["stop_reason"] = reason = _stop_reason(finished)
                self.message["stop_sequence"] = finished.stop if reason == "stop_sequence" else None
                if finished.repetition:
                    self.message["stop_details"] = {"type": "repetition_detected"}
            case Completed(usage=usage):
                self.message["usage"] = _usage(usage)
                ends = ("stop_reason", "stop_sequence", "stop_details")
                message: dict[str, Any] = {**self.message}
                yield {
                    "type": "message_delta",
                    "delta": {name: message[name] for name in ends if name in message},
                    "usage": self.message["usage"],
                }
                yield {"type": "message_stop"}
            case _:
                pass

    def _call(self, delta: ToolCallDelta) -> Iterator[Event]:
        if delta.id is not None:
            yield from self._start(_OpenBlock("tool_use", _call_id(delta.id), delta.name or ""))
        if delta.arguments:
            yield self._delta({"type": "input_json_delta", "partial_json": delta.arguments}, delta.arguments)

    def _more(self, kind: Literal["text", "thinking"], text: str) -> Iterator[Event]:
        if self._open is None or self._open.kind != kind:
            yield from self._start(_OpenBlock(kind))
        if kind == "text":
            yield self._delta({"type": "text_delta", "text": text}, text)
        elif self._shows_thoughts:
            yield self._delta({"type": "thinking_delta", "thinking": text}, text)
        elif self._open is not None:
            self._open.pieces.append(text)

    def _start(self, block: _OpenBlock) -> Iterator[Event]:
        yield from self._close()
        self._open = block
        shown = self._whole(block)
        if "signature" in shown:
            shown["signature"] = ""
        yield {"type": "content_block_start", "index": self._index, "content_block": shown}

    def _delta(self, delta: dict[str, str], text: str) -> Event:
        assert self._open is not None
        self._open.pieces.append(text)
        return {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _close(self) -> Iterator[Event]:
        block = self._open
        if block is None:
            return
        if block.kind == "thinking":
            signature = signature_of(block.text, shown=self._shows_thoughts)
            delta = {"type": "signature_delta", "signature": signature}
            yield {"type": "content_block_delta", "index": self._index, "delta": delta}
        yield {"type": "content_block_stop", "index": self._index}
        self.message["content"].append(self._whole(block))
        self._open = None

    def _whole(self, block: _OpenBlock) -> ContentBlock:
        match block.kind:
            case "text":
                return {"type": "text", "text": block.text}
            case "thinking":
                return {
                    "type": "thinking",
                    "thinking": block.text if self._shows_thoughts else "",
                    "signature": signature_of(block.text, shown=self._shows_thoughts),
                }
            case "tool_use":
                values = object_arguments(block.text)
                return {"type": "tool_use", "id": block.id, "name": block.name, "input": values}

    @property
    def _index(self) -> int:
        return len(self.message["content"])


def _usage(usage: CoreUsage) -> MessageUsage:
    return {
        "input_tokens": max(0, usage.prompt_tokens - usage.cached_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


def _stop_reason(finished: Finished) -> StopReason:
    if finished.reason == "length":
        return "model_context_window_exceeded" if finished.context_full else "max_tokens"
    if finished.reason == "tool_calls":
        return "tool_use"
    return "end_turn" if finished.stop is None else "stop_sequence"


def _call_id(call_id: str) -> str:
    """A call's id in Anthropic's style, unless the model's template asks for another one."""
    return f"toolu_{call_id.removeprefix(_PLAIN_ID)}" if call_id.startswith(_PLAIN_ID) else call_id
