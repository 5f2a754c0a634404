"""The API key check: both headers, all routes. Clients in trusted networks may call some routes without a key."""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Collection, Iterable
from hashlib import blake2b, sha256
from http import HTTPStatus
from typing import Final

from starlette.types import ASGIApp, Scope

from jan_serve.core.caller import cache_salt, client, salt_of
from jan_serve.core.hosts import is_loopback
from jan_serve.http.errors import Envelopes, http_problem
from jan_serve.http.guards.guard import Guard, header_values
from jan_serve.http.paths import is_below, is_page_path

_FORWARDED: Final = re.compile(
    rb"via|cdn-loop|x-jan-serve-hops|.*forwarded.*|x-envoy-external-address"
    rb"|(?:.*-)?(?:client|connecting|origin|original|originating|real|remote|source|user)-?(?:ip|addr|address)(?:v6)?"
)
"""Headers of proxies, behind which the client may be anywhere. Some programs take `_` for `-`."""


class TrustedNetworks:
    """networks: as `192.168.1.0/24`. routes: with all below them."""

    def __init__(self, networks: Iterable[str], routes: Iterable[str]) -> None:
        self._networks = tuple(ipaddress.ip_network(text) for text in networks)
        self._routes = tuple(routes)

    def may_call(self, scope: Scope) -> bool:
        """Whether the request comes directly from one of the networks, to one of the routes."""
        client = scope.get("client")
        if not self._networks or client is None or not is_below(scope["path"], self._routes):
            return False
        if any(_FORWARDED.fullmatch(name.replace(b"_", b"-")) for name, _ in scope["headers"]):
            return False
        try:
            address = ipaddress.ip_address(client[0])
        except ValueError:
            return False
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return any((mapped or address) in network for network in self._networks)


OPEN_PATHS: Final = frozenset({"/health"})
_BEARER: Final = b"bearer "
_TRUSTED_SALT: Final = "trusted network"
CALLER: Final = b"x-jan-serve-caller"
"""Header of proxies: which of their clients a request is for. Any text; it divides what belongs to the key."""


def needs_key(method: str, path: str, open_paths: Collection[str]) -> bool:
    """open_paths: readable without a key, besides the server's own."""
    if path in OPEN_PATHS or is_page_path(method, path):
        return False
    return path not in open_paths or method not in ("GET", "HEAD")


class KeyGuard(Guard):
    """Accepts a configured key in `Authorization: Bearer` or `x-api-key`."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        envelopes: Envelopes,
        keys: Iterable[str],
        open_paths: Iterable[str] = (),
        trusted: TrustedNetworks | None = None,
    ) -> None:
        """keys: without one, the guard accepts every request; empty texts do not count. trusted: need no key."""
        super().__init__(app, envelopes)
        self._trusted = trusted or TrustedNetworks((), ())
        self._open_paths = frozenset(open_paths)
        self._digests = tuple(dict.fromkeys(sha256(key.encode()).digest() for key in keys if key))

    @property
    def has_keys(self) -> bool:
        return bool(self._digests)

    def check(self, scope: Scope) -> None:
        """Raises 401. With several keys, what one leaves on the server is for no other: cached prompts, stored answers,
        sessions."""
        client.set(_program(scope))
        cache_salt.set(salt_of(self._key_salt(scope), _caller(scope)))

    def _key_salt(self, scope: Scope) -> str:
        """Stands for the key of the request, where there are several. Raises 401."""
        if not self._digests or not needs_key(scope["method"], scope["path"], self._open_paths):
            return ""
        if self._trusted.may_call(scope):
            return _TRUSTED_SALT if len(self._digests) > 1 else ""
        known = [digest for key in _presented(scope) if (digest := self._known(key)) is not None]
        if not known:
            raise http_problem(
                HTTPStatus.UNAUTHORIZED, "invalid_api_key", "Invalid API key", {"www-authenticate": "Bearer"}
            )
        client.set(blake2b(known[0], digest_size=16, person=b"client").hexdigest())
        if len(self._digests) == 1:
            return ""
        return blake2b(known[0], digest_size=16, person=b"cache salt").hexdigest()

    def _known(self, key: bytes) -> bytes | None:
        """The digest of a known key. Compares with every key: the time must not show which one matches, or how much of
        it."""
        digest = sha256(key).digest()
        found = False
        for known in self._digests:
            found |= hmac.compare_digest(digest, known)
        return digest if found and key else None


def _program(scope: Scope) -> str:
    """The address; of this machine's programs, which all have one, also the name that each gives itself."""
    address = str((scope.get("client") or ("",))[0])
    if not is_loopback(address):
        return address
    names = b"\n".join(header_values(scope, b"user-agent"))
    return f"{address} {blake2b(names, digest_size=16).hexdigest()}"


def _caller(scope: Scope) -> str:
    values = header_values(scope, CALLER)
    return blake2b(b"\n".join(values), digest_size=16).hexdigest() if values else ""


def presents(scope: Scope, key: str) -> bool:
    """Whether the request has this key. The time does not show how much of it is right."""
    known = sha256(key.encode()).digest()
    return any([hmac.compare_digest(sha256(each).digest(), known) for each in _presented(scope)])


def _presented(scope: Scope) -> list[bytes]:
    keys = header_values(scope, b"x-api-key")
    for value in header_values(scope, b"authorization"):
        if value[: len(_BEARER)].lower() == _BEARER:
            keys.append(value[len(_BEARER) :].strip())
    return keys
