"""Renders chat templates. Started as `jan-serve render`; not a user command."""

from __future__ import annotations

from jan_serve.chat.template import render_prompt
from jan_serve.helpers.child import serve
from jan_serve.helpers.kinds import RENDERING, RenderRequest


def main() -> int:
    """Serve requests until the pipe closes."""
    return serve(RENDERING, rendered)


def rendered(request: RenderRequest) -> str:
    """The prompt's text. Raises as `render_prompt`."""
    return render_prompt(request.prompt, request.facts, lambda: request.now)
