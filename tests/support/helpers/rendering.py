"""Renders chat templates in the test's process, for tests of other parts."""

from __future__ import annotations

from jan_serve.chat.template import rendered_chat
from jan_serve.core.request import RenderedChat, RenderRequest
from jan_serve.helpers.kinds import RENDERING


async def render_inline(request: RenderRequest) -> RenderedChat:
    """A TemplateRenderer. Only for templates written by tests: nothing ends a runaway template."""
    return rendered_chat(RENDERING.requests.decode(RENDERING.requests.body(request)))
