"""Hooks that `connection` offers to the application beside ASGI. Absent under another ASGI server, e.g. in tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from starlette.types import Scope

_EXTENSION = "jan_serve.connection"


class ConnectionHooks(msgspec.Struct, frozen=True):
    """target: the request target as sent. abort: drop the connection and its buffered output."""

    target: bytes
    abort: Callable[[], None]


def attach_hooks(scope: Scope, hooks: ConnectionHooks) -> None:
    scope.setdefault("extensions", {})[_EXTENSION] = hooks


def hooks_of(scope: Scope) -> ConnectionHooks | None:
    extensions: dict[str, Any] = scope.get("extensions") or {}
    hooks = extensions.get(_EXTENSION)
    return hooks if isinstance(hooks, ConnectionHooks) else None


def abort_connection(scope: Scope) -> None:
    """Drop the connection, so that the client sees an incomplete answer as incomplete."""
    hooks = hooks_of(scope)
    if hooks is not None:
        hooks.abort()
