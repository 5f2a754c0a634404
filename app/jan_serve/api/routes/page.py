"""The web page at `/`, and its assets. Other clients get an empty 200, as from Text Generation Inference.

The files of one folder are read once; a request path is looked up among them and never joined to a folder. The page
needs no key, because it contains no secrets; it asks the user for the key of the routes that it calls.
"""

from __future__ import annotations

import mimetypes
import re
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.api.errors import http_problem

PAGE_PATH: Final = "/"
ASSETS_PATH: Final = "/assets/"
INDEX: Final = "index.html"

# Scripts, styles, images and calls of this server only, nothing inline, no frames.
# Only `dompurify` may turn text into HTML.
CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types dompurify",
    )
)
_PAGE_HEADERS: Final = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-cache",
}
_ASSET_HEADERS: Final = {
    "cross-origin-resource-policy": "same-origin",
    "x-content-type-options": "nosniff",
}
_IMMUTABLE: Final = "public, max-age=31536000, immutable"
_HASHED: Final = re.compile(r"-[0-9A-Z]{8}\.[a-z0-9]+\Z")
"""esbuild's names with a content hash: the content of such a name never changes."""

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Independent of the system's table, which has text/plain for .js on some systems."""


@dataclass(frozen=True, slots=True)
class PageFile:
    content: bytes
    media_type: str
    etag: str


def is_page_path(method: str, path: str) -> bool:
    """Whether a request is for the page or an asset, which are public."""
    return method in ("GET", "HEAD") and (path == PAGE_PATH or path.startswith(ASSETS_PATH))


def accepts_html(accept: str) -> bool:
    """Whether an Accept header names text/html, as those of browsers do. `*/*` does not count."""
    for part in accept.split(","):
        media_type, *parameters = (word.strip().lower() for word in part.split(";"))
        if media_type in ("text/html", "application/xhtml+xml"):
            return not any(re.fullmatch(r"q=0(\.0*)?", parameter) for parameter in parameters)
    return False


def read_page(folder: Path) -> dict[str, PageFile]:
    """The files of a page by name: `index.html`, and those of `assets/`. Blocks. Raises OSError."""
    paths = [folder / INDEX, *sorted((folder / "assets").iterdir())]
    return {path.name: _read(path) for path in paths if path.is_file()}


def _read(path: Path) -> PageFile:
    content = path.read_bytes()
    media_type = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return PageFile(content, media_type, f'"{sha256(content).hexdigest()[:32]}"')


def page_router(folder: Path | None) -> APIRouter:
    """folder: None if this installation has no page."""
    files = read_page(folder) if folder is not None else {}
    router = APIRouter(include_in_schema=False)

    @router.api_route(PAGE_PATH, methods=["GET", "HEAD"])
    async def page(request: Request) -> Response:
        """HTML for browsers; an empty 200 for other clients."""
        index = files.get(INDEX)
        if index is None or not accepts_html(request.headers.get("accept", "")):
            return Response(headers={"vary": "Accept"})
        return _answer(request, index, {**_PAGE_HEADERS, "vary": "Accept"})

    @router.api_route(ASSETS_PATH + "{name}", methods=["GET", "HEAD"])
    async def asset(request: Request, name: str) -> Response:
        """Scripts, styles and pictures of the page."""
        file = files.get(name) if name != INDEX else None
        if file is None:
            raise http_problem(HTTPStatus.NOT_FOUND, "not_found", "There is no such route on this server.")
        caching = _IMMUTABLE if _HASHED.search(name) else "no-cache"
        return _answer(request, file, {**_ASSET_HEADERS, "cache-control": caching})

    return router


def _answer(request: Request, file: PageFile, headers: dict[str, str]) -> Response:
    headers = {**headers, "etag": file.etag}
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media_type)
