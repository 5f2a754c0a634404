"""The shape of /api/chat: a message. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jan_serve.dialects.ollama.chat.wire import OllamaMessage
from jan_serve.dialects.ollama.render_common import OllamaCall


def message_shape(text: str, thought: str, calls: Sequence[OllamaCall]) -> dict[str, Any]:
    message: OllamaMessage = {"role": "assistant", "content": text}
    if thought:
        message["thinking"] = thought
    if calls:
        message["tool_calls"] = list(calls)
    return {"message": message}
