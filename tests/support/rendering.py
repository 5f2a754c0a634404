"""Renders chat templates in the test's process, for tests of other parts."""

from __future__ import annotations

from jan_serve.chat.template import render_prompt
from jan_serve.ipc.rendering import RenderRequest


class InlineRenderer:
    """A TemplateRenderer. Only for templates written by tests: nothing ends a runaway template."""

    async def render(self, request: RenderRequest) -> str:
        return render_prompt(request.prompt, request.facts, lambda: request.now)
