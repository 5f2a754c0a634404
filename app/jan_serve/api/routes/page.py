"""The web page at `/`, and its assets. Programs get a 200 with the greeting that they look for.

The page needs no key, because it contains no secrets; it asks the user for the key of the routes that it calls.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.http.page_files import Page
from jan_serve.http.paths import ASSETS_PATH, PAGE_PATH


def page_router(folder: Path | None, greeting: str = "") -> APIRouter:
    """folder: None if this installation has no page. greeting: for clients that are no browsers."""
    files = Page(folder, greeting)
    router = APIRouter(include_in_schema=False)

    @router.get(PAGE_PATH)
    async def page(request: Request) -> Response:
        return files.index(request)

    @router.get(ASSETS_PATH + "{name}")
    async def asset(request: Request, name: str) -> Response:
        return files.asset(request, name)

    return router
