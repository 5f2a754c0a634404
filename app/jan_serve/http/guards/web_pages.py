"""What web pages may call: the Host allow-list (against DNS rebinding), CORS and CSRF."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jan_serve.core.hosts import is_everywhere
from jan_serve.http.disconnect import hooks_of
from jan_serve.http.errors import Envelopes, HttpError, http_problem
from jan_serve.http.guards.guard import SAFE_METHODS, Guard, header_values
from jan_serve.http.paths import is_page_path

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


APP_ORIGINS: Final[dict[str, str]] = {
    "Tauri on macOS and Linux": r"tauri://localhost",
    "Tauri on Windows and Android": r"https?://tauri\.localhost",
    "Obsidian": r"app://obsidian\.md",
    "Obsidian on phones": r"capacitor://localhost",
    "VS Code, panels of extensions": r"vscode-webview://[a-z0-9-]{1,64}",
    "VS Code itself": r"vscode-file://vscode-app",
}
"""Patterns of whole origins in lower case, by application."""

_ANY: Final = re.compile("|".join(f"(?:{pattern})" for pattern in APP_ORIGINS.values()))


def is_app_origin(origin: str) -> bool:
    """origin: in lower case."""
    return _ANY.fullmatch(origin) is not None


_LOOPBACK: Final = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?\Z")
_METHODS: Final = "GET, POST, PUT, PATCH, DELETE, OPTIONS"
_HEADER_NAMES: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,2048}\Z")
_EXPOSED: Final = "x-request-id, request-id, openai-processing-ms, retry-after, x-jan-serve-warning"
_PREFLIGHT_SECONDS: Final = "600"
_OTHER_SITES: Final = frozenset({b"cross-site", b"same-site"})
"""Sec-Fetch-Site of requests from pages of another origin, including images and links (W3C Fetch Metadata)."""


class OriginGuard(Guard):
    """Answers preflights, adds CORS headers for allowed origins, rejects calls of others."""

    def __init__(
        self, app: ASGIApp, *, envelopes: Envelopes, allowed: Iterable[str], open_paths: Iterable[str] = ()
    ) -> None:
        """allowed: besides loopback and desktop applications; `*` is every origin. open_paths: readable by any page."""
        super().__init__(app, envelopes)
        self._open_paths = frozenset(open_paths)
        self._allowed = frozenset(origin.lower().rstrip("/") for origin in allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = _origin(scope) if scope["type"] == "http" else None
        if origin is None or not self.allows(origin, scope):
            await super().__call__(scope, receive, send)
            return

        async def send_with_cors(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["access-control-allow-origin"] = origin
                headers["access-control-expose-headers"] = _EXPOSED
                headers.add_vary_header("Origin")
            await send(message)

        if scope["method"] == "OPTIONS" and header_values(scope, b"access-control-request-method"):
            await _preflight(scope)(scope, receive, send_with_cors)
        else:
            await super().__call__(scope, receive, send_with_cors)

    def allows(self, origin: str, scope: Scope) -> bool:
        """The server's own origin, the one with the (checked) Host, is always allowed."""
        lowered = origin.lower()
        if lowered in self._allowed or "*" in self._allowed:
            return True
        if _LOOPBACK.match(lowered) or is_app_origin(lowered):
            return True
        own = header_values(scope, b"host")
        return len(own) == 1 and lowered == f"{scope['scheme']}://{own[0].decode('latin-1').lower()}"

    def check(self, scope: Scope) -> None:
        """Raises 403 for calls of pages that are not allowed: writes, preflights, and reads with such a Sec-Fetch-Site.

        Reads too, because some load a model, and the URL of an image suffices for a read. A read that has a foreign
        Origin only is answered, without CORS headers.
        """
        origin = _origin(scope)
        if origin is not None and self.allows(origin, scope):
            return
        # No Origin means no browser or a read. Browsers mark a read of another site in Sec-Fetch-Site.
        is_marked = not _OTHER_SITES.isdisjoint(header_values(scope, b"sec-fetch-site"))
        if scope["method"] in SAFE_METHODS and not (scope["method"] == "OPTIONS" and origin is not None):
            is_open = scope["path"] in self._open_paths or is_page_path(scope["method"], scope["path"])
            foreign = is_marked and "*" not in self._allowed and not is_open
        else:
            foreign = is_marked or origin is not None
        if foreign:
            raise http_problem(
                HTTPStatus.FORBIDDEN,
                "forbidden_origin",
                "Web pages of this origin may not call the server. Allow it with --allowed-origin if it is yours.",
            )


def _origin(scope: Scope) -> str | None:
    values = header_values(scope, b"origin")
    if not values:
        return None
    return values[0].decode("latin-1") if len(values) == 1 else "several"


def _preflight(scope: Scope) -> Response:
    headers = {"access-control-allow-methods": _METHODS, "access-control-max-age": _PREFLIGHT_SECONDS}
    requested = b", ".join(header_values(scope, b"access-control-request-headers")).decode("latin-1")
    if _HEADER_NAMES.match(requested):
        headers["access-control-allow-headers"] = requested
    if header_values(scope, b"access-control-request-private-network"):
        headers["access-control-allow-private-network"] = "true"
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=headers)
