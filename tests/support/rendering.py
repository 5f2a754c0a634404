"""Renders chat templates in the test's process, for tests of other parts."""

from __future__ import annotations

from jan_serve.chat.template import render_prompt
from jan_serve.ipc.helper import LENGTH
from jan_serve.ipc.rendering import RenderRequest, decode_request, frame


class InlineRenderer:
    """A TemplateRenderer. Only for templates written by tests: nothing ends a runaway template."""

    async def render(self, request: RenderRequest) -> str:
        """Renders at once, what comes out of the renderer's pipe."""
        request = decode_request(frame(request)[LENGTH.size :])
        return render_prompt(request.prompt, request.facts, lambda: request.now)
