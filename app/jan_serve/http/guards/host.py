"""The Host allow-list, against DNS rebinding: web pages whose own name resolves to 127.0.0.1."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from starlette.types import ASGIApp, Scope

from jan_serve.core.hosts import is_everywhere
from jan_serve.http.connection_hooks import hooks_of
from jan_serve.http.errors import Envelopes, HttpError, http_problem
from jan_serve.http.guards.guard import Guard, header_values

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})

# RFC 3986 host and port, without user information or any other part of a URL.
_HOST: Final = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(\d{1,5}))?\Z")


def split_host(value: bytes) -> tuple[str, str | None] | None:
    """Name in lower case (IPv6 in brackets) and port of a Host value; None if it is invalid."""
    found = _HOST.match(value)
    if found is None:
        return None
    port = found[2].decode() if found[2] is not None else None
    return found[1].decode().lower(), port


class HostGuard(Guard):
    """Allows loopback names, the bound address, the address that the client connected to, and configured names."""

    def __init__(self, app: ASGIApp, *, envelopes: Envelopes, bound: str, allowed: Iterable[str]) -> None:
        """allowed: names; one without a port allows all ports."""
        super().__init__(app, envelopes)
        names = {name.lower() for name in allowed}
        if not is_everywhere(bound):
            names.add(_bracketed(bound.lower()))
        self._allowed = LOOPBACK_NAMES | names

    def check(self, scope: Scope) -> None:
        """Raises 403 for a host that is not allowed."""
        hooks = hooks_of(scope)
        if hooks is not None and not hooks.target.startswith(b"/"):
            raise _refusal("Only origin-form request targets are served.")
        values = header_values(scope, b"host")
        host = split_host(values[0]) if len(values) == 1 else None
        if host is None:
            raise _refusal("The request needs exactly one valid Host header.")
        name, port = host
        if name in self._allowed or f"{name}:{port}" in self._allowed or name == _reached(scope):
            return
        raise _refusal("This host name is not allowed. Add it with --allowed-host if it is yours.")


def _reached(scope: Scope) -> str | None:
    """The local address of the connection. Safe, because a rebound name is never an address."""
    server = scope.get("server")
    return _bracketed(server[0]) if server and server[1] is not None else None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _refusal(message: str) -> HttpError:
    return http_problem(HTTPStatus.FORBIDDEN, "forbidden_host", message)
