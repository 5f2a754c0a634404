"""The web page, read once; a request path is never joined to a folder. No web framework: the proxy serves it too."""

from __future__ import annotations

import mimetypes
import re
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.http.errors import http_problem

INDEX: Final = "index.html"

# Scripts, styles, images and calls of this server only, nothing inline, no frames.
# Only `dompurify` may turn text into HTML. `worker` makes one address, that of the service worker.
CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types dompurify worker",
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
_ASSET_HEADERS: Final = {"cross-origin-resource-policy": "same-origin", "x-content-type-options": "nosniff"}
_WORKER: Final = "worker.js"
"""The page's service worker, whose scope is the page rather than its own folder."""
_IMMUTABLE: Final = "public, max-age=31536000, immutable"
_HASHED: Final = re.compile(r"-[0-9A-Z]{8}\.[a-z0-9]+\Z")
"""esbuild's names with a content hash: the content of such a name never changes."""

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}
"""Independent of the system's table, which has text/plain for .js on some systems."""


class PageFile(msgspec.Struct, frozen=True):
    content: bytes
    media_type: str
    etag: str


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


class Page:
    """folder: None if there is no page. greeting: for other clients than browsers. Blocks. Raises OSError."""

    def __init__(self, folder: Path | None, greeting: str = "") -> None:
        self._greeting = greeting
        self._files = read_page(folder) if folder is not None else {}

    def index(self, request: Request) -> Response:
        """HTML for browsers; the greeting for other clients."""
        index = self._files.get(INDEX)
        if index is None or not accepts_html(request.headers.get("accept", "")):
            media_type = "text/plain" if self._greeting else None
            return Response(self._greeting, headers={"vary": "Accept"}, media_type=media_type)
        return _answer(request, index, {**_PAGE_HEADERS, "vary": "Accept"})

    def asset(self, request: Request, name: str) -> Response:
        """A script, style or picture of the page. Raises HttpError (404)."""
        file = self._files.get(name) if name != INDEX else None
        if file is None:
            raise http_problem(HTTPStatus.NOT_FOUND, "not_found", "There is no such route on this server.")
        caching = _IMMUTABLE if _HASHED.search(name) else "no-cache"
        scope = {"service-worker-allowed": "../"} if name == _WORKER else {}
        return _answer(request, file, {**_ASSET_HEADERS, **scope, "cache-control": caching})


def _answer(request: Request, file: PageFile, headers: dict[str, str]) -> Response:
    headers = {**headers, "etag": file.etag}
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media_type)
