"""The API key check, if one is configured: the same for all routes and both headers."""

from __future__ import annotations

import hmac
from collections.abc import Collection, Iterable
from hashlib import sha256
from http import HTTPStatus
from typing import Final

from starlette.types import ASGIApp, Scope

from jan_serve.api.errors import Envelopes, http_problem
from jan_serve.api.guards.guard import Guard, header_values
from jan_serve.api.routes.page import is_page_path

OPEN_PATHS: Final = frozenset({"/health"})
_BEARER: Final = b"bearer "


def needs_key(method: str, path: str, open_paths: Collection[str]) -> bool:
    """open_paths: readable without a key, besides the server's own."""
    if path in OPEN_PATHS or is_page_path(method, path):
        return False
    return path not in open_paths or method not in ("GET", "HEAD")


class KeyGuard(Guard):
    """Accepts a configured key in `Authorization: Bearer` or `x-api-key`."""

    def __init__(
        self, app: ASGIApp, *, envelopes: Envelopes, keys: Iterable[str], open_paths: Iterable[str] = ()
    ) -> None:
        """keys: without one, the guard accepts every request; empty texts do not count."""
        super().__init__(app, envelopes)
        self._open_paths = frozenset(open_paths)
        self._digests = tuple(sha256(key.encode()).digest() for key in keys if key)

    def check(self, scope: Scope) -> None:
        """Raises 401."""
        if not self._digests or not needs_key(scope["method"], scope["path"], self._open_paths):
            return
        if not any([self._known(key) for key in _presented(scope)]):
            raise http_problem(
                HTTPStatus.UNAUTHORIZED, "invalid_api_key", "Invalid API key", {"www-authenticate": "Bearer"}
            )

    def _known(self, key: bytes) -> bool:
        """Compares digests with every key: the time must not show which key matches, or how much of it."""
        digest = sha256(key).digest()
        found = False
        for known in self._digests:
            found |= hmac.compare_digest(digest, known)
        return found and bool(key)


def _presented(scope: Scope) -> list[bytes]:
    keys = header_values(scope, b"x-api-key")
    for value in header_values(scope, b"authorization"):
        if value[: len(_BEARER)].lower() == _BEARER:
            keys.append(value[len(_BEARER) :].strip())
    return keys
