"""Renders chat templates. Started as `jan-serve render`; not a user command."""

from __future__ import annotations

from jan_serve.chat.template import rendered_chat
from jan_serve.helpers.child import serve
from jan_serve.helpers.kinds import RENDERING


def main() -> int:
    """Serve requests until the pipe closes."""
    return serve(RENDERING, rendered_chat)
