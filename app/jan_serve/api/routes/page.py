"""The web page at `/`, and its assets. Other clients get an empty 200, as from Text Generation Inference.

The page needs no key, because it contains no secrets; it asks the user for the key of the routes that it calls.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.api.http.page_files import Page
from jan_serve.api.http.page_paths import ASSETS_PATH, PAGE_PATH


def page_router(folder: Path | None) -> APIRouter:
    """folder: None if this installation has no page."""
    files = Page(folder)
    router = APIRouter(include_in_schema=False)

    @router.api_route(PAGE_PATH, methods=["GET", "HEAD"])
    async def page(request: Request) -> Response:
        return files.index(request)

    @router.api_route(ASSETS_PATH + "{name}", methods=["GET", "HEAD"])
    async def asset(request: Request, name: str) -> Response:
        return files.asset(request, name)

    return router
