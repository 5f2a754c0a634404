"""Which headers go on to a node, and which come back. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from jan_serve.http.guards.auth import CALLER

HOPS: Final = b"x-jan-serve-hops"
NODE: Final = b"x-jan-serve-node"
MAX_RETRY_AFTER_S: Final = 3600

Headers = list[tuple[bytes, bytes]]

# RFC 9110, section 7.6.1
_HOP_BY_HOP: Final = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding"
    b" upgrade".split()
)
# The client's key is for the proxy, which has checked the origin of the request too.
_NOT_TO_NODES: Final = _HOP_BY_HOP | frozenset(
    b"host content-length expect authorization x-api-key api-key x-goog-api-key cookie origin referer forwarded"
    b" x-real-ip x-forwarded-for x-forwarded-host x-forwarded-proto x-jan-serve-hops x-jan-serve-caller"
    b" x-jan-serve-transcript".split()
)
_NOT_TO_CLIENTS: Final = _HOP_BY_HOP | frozenset(
    b"set-cookie server date alt-svc strict-transport-security x-jan-serve-node x-jan-serve-records".split()
)


_CONTEXT: Final = frozenset({b"traceparent", b"tracestate"})


def to_node(
    headers: Iterable[tuple[bytes, bytes]],
    client: str | None,
    hops: int,
    key: str | None,
    caller: str = "",
    context: Mapping[str, str] = {},
) -> Headers:
    """client: the address that the request came from. key: of the node. caller: whose key the request had, where they
    are several: the node keeps their caches and answers apart, though all requests have its own key. context: of the
    trace, in place of the client's."""
    named = _named_by_connection(headers) | _CONTEXT if context else _named_by_connection(headers)
    passed = [
        (name, value)
        for name, value in headers
        if name not in _NOT_TO_NODES and not name.startswith(b"sec-") and name not in named
    ]
    passed.append((HOPS, b"%d" % hops))
    passed.extend((name.encode(), value.encode("latin-1")) for name, value in context.items())
    if caller:
        passed.append((CALLER, caller.encode()))
    if client is not None:
        passed.append((b"x-forwarded-for", client.encode("ascii", "replace")))
    return passed if key is None else [*passed, (b"authorization", b"Bearer " + key.encode())]


def to_client(headers: Iterable[tuple[bytes, bytes]], node: str) -> Headers:
    named = _named_by_connection(headers)
    passed = [
        (name, _capped(value) if name == b"retry-after" else value)
        for name, value in headers
        if name not in _NOT_TO_CLIENTS and not name.startswith(b"access-control-") and name not in named
    ]
    return [*passed, (NODE, node.encode("ascii", "replace"))]


def hops_of(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """How many proxies the request went through; a value that no proxy writes counts as many."""
    values = [value for name, value in headers if name == HOPS]
    if not values:
        return 0
    return int(values[0]) if len(values) == 1 and values[0].isdigit() and len(values[0]) < 4 else 1000


def _named_by_connection(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    return frozenset(
        word.strip().lower() for name, value in headers if name == b"connection" for word in value.split(b",")
    )


def _capped(value: bytes) -> bytes:
    return b"%d" % MAX_RETRY_AFTER_S if value.isdigit() and int(value[:20]) > MAX_RETRY_AFTER_S else value
