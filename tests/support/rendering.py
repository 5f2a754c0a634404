"""Renders chat templates in the test's process, for tests of other parts."""

from __future__ import annotations

from jan_serve.helpers.kinds import RENDERING, RenderRequest
from jan_serve.helpers.work.rendering import rendered


async def render_inline(request: RenderRequest) -> str:
    """A TemplateRenderer. Only for templates written by tests: nothing ends a runaway template."""
    return rendered(RENDERING.decode_request(RENDERING.encode_request(request)))
