"""What a connection tells and offers to the application beside ASGI: `connection` provides it, anything may use it.

Under another server (tests, a proxy's ASGI host) the hooks are absent and their users do without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.types import Scope

_EXTENSION = "jan_serve.connection"


@dataclass(frozen=True, slots=True)
class ConnectionHooks:
    """target: the request target as it was sent. abort: drop the connection without sending what is buffered."""

    target: bytes
    abort: Callable[[], None]


def attach_hooks(scope: Scope, hooks: ConnectionHooks) -> None:
    """Make the hooks known to the application."""
    scope.setdefault("extensions", {})[_EXTENSION] = hooks


def hooks_of(scope: Scope) -> ConnectionHooks | None:
    """The hooks of the connection that the request came over, if its server has them."""
    extensions: dict[str, Any] = scope.get("extensions") or {}
    hooks = extensions.get(_EXTENSION)
    return hooks if isinstance(hooks, ConnectionHooks) else None


def abort_connection(scope: Scope) -> None:
    """Drop the connection: the only honest end of an answer that broke off."""
    hooks = hooks_of(scope)
    if hooks is not None:
        hooks.abort()
