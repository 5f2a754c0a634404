"""Jan's API (0.3.14, the OpenAI form of llama-cpp-python's server): /v1/* and /extras/*. It serves the root."""

from __future__ import annotations

from typing import Final

from jan_serve.api.dialect import Dialect
from jan_serve.api.dialects.openai.errors import render_error
from jan_serve.api.dialects.openai.routes import jan_router

JAN: Final = Dialect(name="jan", error_prefixes=("",), render_error=render_error, router=jan_router)
