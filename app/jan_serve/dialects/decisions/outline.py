"""Where questions with listed answers are decided, and what a proxy knows of these routes."""

from __future__ import annotations

from typing import Final

from jan_serve.dialects.outline import Outline, routes
from jan_serve.dialects.shared.default_error_body import render_error

_PATHS: Final = ("/v1/decide", "/v1/systemone")

OUTLINE: Final = Outline(
    _PATHS,
    errors=dict.fromkeys(_PATHS, render_error),
    forwarded=routes(*_PATHS),
    prompt_members=("instructions", "state"),
)
