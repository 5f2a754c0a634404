"""Renders chat templates in the test's process, for tests of other parts."""

from __future__ import annotations

from jan_serve.chat.template import render_prompt
from jan_serve.ipc.helper import LENGTH
from jan_serve.ipc.rendering import RenderRequest, decode_request, frame


async def render_inline(request: RenderRequest) -> str:
    """A TemplateRenderer. Only for templates written by tests: nothing ends a runaway template."""
    request = decode_request(frame(request)[LENGTH.size :])
    return render_prompt(request.prompt, request.facts, lambda: request.now)
