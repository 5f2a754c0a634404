"""TGI's chat request as core messages and native parameters. Pure."""

from __future__ import annotations

import json
from typing import Final

from jan_serve.core import messages as core
from jan_serve.dialects.tgi.chat.wire import ChatRequest, ImageChunk, Message
from jan_serve.dialects.tgi.errors import ToolFailed, ValidationFailed
from jan_serve.dialects.tgi.generate.wire import Parameters

_PENALTY_SHIFT: Final = 2.0


def chat_messages(body: ChatRequest, added: str) -> tuple[core.Message, ...]:
    """The messages for the template. added: text at the end of the last one. Raises ValidationFailed."""
    if not body.messages:
        raise ValidationFailed("`messages` cannot be empty")
    texts = [_text(message) for message in body.messages]
    texts[-1] += added
    return tuple(
        core.Message(role="system" if message.role == "developer" else message.role, content=text)
        for message, text in zip(body.messages, texts, strict=True)
    )


def _text(message: Message) -> str:
    if message.content is None:
        return json.dumps(message.tool_calls, ensure_ascii=False, separators=(",", ":"))
    if isinstance(message.content, str):
        return message.content
    return "".join(
        f"![]({chunk.image_url.url})" if isinstance(chunk, ImageChunk) else chunk.text
        for chunk in message.content
    )


def continues_answer(body: ChatRequest) -> bool:
    """Whether the last message begins the answer, which continues it."""
    return body.messages[-1].role == "assistant"


def chat_parameters(body: ChatRequest) -> Parameters:
    """A temperature of 0 is greedy; without one, the text is sampled. Raises ToolFailed."""
    if body.tools is not None and body.response_format is not None:
        raise ToolFailed("Grammar and tools are mutually exclusive")
    greedy = body.temperature == 0
    shifted = None if body.presence_penalty is None else body.presence_penalty + _PENALTY_SHIFT
    return Parameters(
        temperature=None if greedy else body.temperature,
        do_sample=not greedy,
        top_p=None if greedy else body.top_p,
        repetition_penalty=shifted,
        frequency_penalty=body.frequency_penalty,
        max_new_tokens=body.max_tokens,
        stop=body.stop or [],
        seed=body.seed,
        top_n_tokens=body.top_logprobs,
        grammar=body.response_format,
        details=True,
    )
