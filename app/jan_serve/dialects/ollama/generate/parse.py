"""Generate request → Job. Pure."""

from __future__ import annotations

import re
from typing import Final

from jan_serve.core.messages import Message
from jan_serve.core.request import ChatPrompt, InfillPrompt, PartsPrompt, Prompt, TextPrompt
from jan_serve.dialects.ollama.generate.wire import OllamaGenerateRequest
from jan_serve.dialects.ollama.parse_common import Job, content_of, job_of
from jan_serve.errors import InvalidRequest

_PROMPT_ALONE: Final = re.compile(r"\s*\{\{-?\s*\.Prompt\s*-?\}\}\s*\Z")
_CONTEXT: Final = "context: ignored; send a conversation to /api/chat"


def has_no_prompt(body: OllamaGenerateRequest) -> bool:
    return not body.prompt and not body.suffix and not body.images


def generate_job(body: OllamaGenerateRequest) -> Job:
    """Raises InvalidRequest."""
    if body.raw and (body.template or body.system or body.context):
        raise InvalidRequest("raw mode does not support template, system, or context", param="raw")
    if any(value for value in (body.width, body.height, body.steps)):
        raise InvalidRequest("width, height, steps: this server makes no images", param="width")
    return job_of(body, _prompt(body), "generate", (_CONTEXT,) if body.context else ())


def _prompt(body: OllamaGenerateRequest) -> Prompt:
    text = body.prompt or ""
    if body.suffix:
        return InfillPrompt(text, body.suffix)
    if body.raw or (body.template and _PROMPT_ALONE.match(body.template)):
        content = content_of(text, body.images, "images")
        return TextPrompt(content) if isinstance(content, str) else PartsPrompt(content)
    if body.template:
        raise InvalidRequest(
            "template: templates of requests are not supported; `raw` sends a prompt as it is, and the model's own"
            " template is a setting of the server",
            param="template",
        )
    system = [Message(role="system", content=body.system)] if body.system else []
    return ChatPrompt(
        messages=(*system, Message(role="user", content=content_of(text, body.images, "images")))
    )
