"""Where Anthropic's routes are."""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

from jan_serve.http.guards.guard import header_values
from jan_serve.http.reroute import reroute

PREFIX: Final = "/anthropic"
"""Of paths that another dialect has at the root."""
MESSAGES: Final = "/v1/messages"
_SHARED: Final = ("/v1/models", "/v1/files")
"""Anthropic's for requests with its header. It has no files here: such a request gets its form of 404."""
_DOUBLED: Final = "/v1" + MESSAGES
"""Where a base URL ends with /v1, though clients add it."""
_VERSION: Final = b"anthropic-version"


def rewrite_head(scope: Scope) -> None:
    path: str = scope["path"]
    if _is_under(path, (_DOUBLED,)):
        reroute(scope, path.removeprefix("/v1"))
    elif _is_under(path, (PREFIX + MESSAGES,)):
        reroute(scope, path.removeprefix(PREFIX))
    elif _is_under(path, _SHARED) and header_values(scope, _VERSION):
        reroute(scope, PREFIX + path)


def _is_under(path: str, roots: tuple[str, ...]) -> bool:
    return path.startswith(roots) and any(path == root or path.startswith(root + "/") for root in roots)
