"""What every reply of Jan's API begins with, and the words it uses. Pure."""

from __future__ import annotations

from typing import Literal

from jan_serve.api.dialects.jan import wire_chat
from jan_serve.core.events import FinishReason, Usage


class ReplyHead:
    """Id, time and model name. The name is the one that the client sent; without one, the model that serves."""

    def __init__(self, reply_id: str, created: int, asked_for: str | None) -> None:
        """created: seconds of the Unix epoch."""
        self.id = reply_id
        self.created = created
        self.model = asked_for or ""
        self._echo = bool(asked_for)

    def served_by(self, name: str) -> None:
        """The model that serves the request."""
        if not self._echo:
            self.model = name


def finish_word(reason: FinishReason) -> Literal["stop", "length", "tool_calls"]:
    """Jan's word for why a text ended."""
    return "stop" if reason == "abort" else reason


def usage_of(usage: Usage) -> wire_chat.Usage:
    """The counts."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }
