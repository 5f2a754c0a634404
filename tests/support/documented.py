"""The OpenAPI document of the application over fakes, made once for all tests that draw calls from it."""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi import FastAPI

from jan_serve.api.app import create_app
from tests.support.engine.fake_client import FakeModels
from tests.support.helpers.compiling import translate_inline
from tests.support.helpers.rendering import render_inline
from tests.support.servers.fronts import make_settings


@cache
def application() -> FastAPI:
    """An application over fakes; its document has all routes except management's."""
    return create_app(make_settings(), FakeModels(), render_inline, translate_inline)


def document() -> dict[str, Any]:
    """Its OpenAPI document."""
    return application().openapi()
