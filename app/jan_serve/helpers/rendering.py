"""Chat templates that are rendered in a helper process."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from jan_serve.core.request import ChatPrompt
from jan_serve.core.template import TemplateFacts
from jan_serve.errors import TemplateError
from jan_serve.helpers.kind import HelperKind


class RenderRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Render a chat. now: the local time, for templates that print the date."""

    prompt: ChatPrompt
    facts: TemplateFacts
    now: datetime


def _too_much(_: RenderRequest) -> TemplateError:
    reason = "the chat template needs more time or memory than one request may use"
    return TemplateError(reason, param="messages")


RENDERING: Final[HelperKind[RenderRequest, str]] = HelperKind(
    command="render",
    name="template renderer",
    request=RenderRequest,
    result=str,
    too_much=_too_much,
    codec="json",
    cpu_limit_s=2.0,
    memory_limit_bytes=256 << 20,
)
