"""Wire types of answers."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

Event = dict[str, Any]
"""One event of a stream: `type` and its members."""

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"]


class ThinkingTokens(TypedDict):
    thinking_tokens: int


class MessageUsage(TypedDict):
    """The prompt has input_tokens and cache_read_input_tokens, which were in the prefix cache."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: NotRequired[ThinkingTokens]


class ContentBlock(TypedDict):
    """A text, a thought or a call, by its type."""

    type: Literal["text", "thinking", "tool_use"]
    text: NotRequired[str]
    thinking: NotRequired[str]
    signature: NotRequired[str]
    id: NotRequired[str]
    name: NotRequired[str]
    input: NotRequired[dict[str, Any]]


class MessageBody(TypedDict):
    """An answer. stop_reason: null at the start of a stream. stop_sequence: the text that ended it."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[ContentBlock]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsage


class TokenCount(TypedDict):
    input_tokens: int
