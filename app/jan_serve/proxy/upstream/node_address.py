"""Where nodes may be: one spelling of the URL for each node, nothing in it that changes where a request goes, and the
networks that nodes may be in. Whoever may add nodes must not make the proxy call anything else. Pure.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

import msgspec

from jan_serve.core.hosts import address_of, is_everywhere, is_loopback

MAX_URL: Final = 2048
_PORTS: Final = {"http": 80, "https": 443}
_NAME: Final = re.compile(
    r"[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?)*\.?\Z"
)
_PATH: Final = re.compile(r"(/[A-Za-z0-9._~-]+)*\Z")


class BadUrl(ValueError):
    """The text says what is wrong, as the end of a sentence about the URL."""


class NodeUrl(msgspec.Struct, frozen=True):
    """host: in lower case, without brackets. path: empty or `/…` without a slash at the end."""

    scheme: str
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"

    @property
    def authority(self) -> str:
        return str(self).split("://", 1)[1].removesuffix(self.path)


def parse_node_url(text: str, caller: str | None = None) -> NodeUrl:
    """Read the URL of a node. Raises BadUrl.

    caller: the address that named the URL. It replaces `0.0.0.0` and `::`, which servers that listen on every address
    say of themselves; and it must be this machine for loopback URLs, which would mean the proxy's machine.
    """
    if len(text) > MAX_URL:
        raise BadUrl(f"is longer than {MAX_URL} characters")
    if not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        raise BadUrl("may hold ASCII characters without blanks only; write other names in their xn-- form")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise BadUrl(f"is not valid: {error}") from None
    path = parts.path.rstrip("/")
    is_plain = _PATH.match(path) and not any(step in (".", "..") for step in path.split("/"))
    for fits, words in (
        (parts.scheme in _PORTS, "must begin with http:// or https://"),
        ("@" not in parts.netloc, "must not hold a user or a password"),
        ("?" not in text and "#" not in text, "must end with the host or a path, without ? and #"),
        (port != 0 and not parts.netloc.endswith(":"), "has a port that is not between 1 and 65535"),
        (is_plain, "has a path with other characters than letters, digits and . _ ~ -"),
    ):
        if not fits:
            raise BadUrl(words)
    host = _host(parts.hostname or "", bracketed="[" in parts.netloc)
    if is_everywhere(host):
        if caller is None:
            raise BadUrl(f"names {host}, which stands for every address of a machine: name one of them")
        host = _host(caller, bracketed=":" in caller)
    elif caller is not None and is_loopback(host) and not is_loopback(caller):
        raise BadUrl(
            f"names {host}, which is the proxy's own machine, but the request came from {caller}: name an address"
            " that the proxy can reach (`jan-serve serve --advertise-url`)"
        )
    return NodeUrl(parts.scheme, host, port or _PORTS[parts.scheme], path)


@lru_cache(maxsize=16_384)
def known_url(text: str) -> NodeUrl:
    """A URL that was read before."""
    return parse_node_url(text)


def _host(host: str, *, bracketed: bool) -> str:
    if not host:
        raise BadUrl("has no host")
    if bracketed:
        address = address_of(host)
        if address is None or "%" in host:
            raise BadUrl("has brackets around something that is not an IPv6 address")
        return str(address)
    if re.fullmatch(r"[0-9.]+", host):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise BadUrl("has a host that is neither an IPv4 address nor a name") from None
    if not _NAME.match(host) or len(host) > 253:
        raise BadUrl("has a host that is neither a name nor an IP address (IPv6 in brackets)")
    return host.lower().rstrip(".")


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

HOME_NETWORKS: Final = tuple(
    ipaddress.ip_network(text)
    for text in (
        "127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "::1/128", "fc00::/7",
    )
)  # fmt: skip
"""This machine, private networks (RFC 1918, RFC 4193), and those of carriers and VPNs (RFC 6598). Not link-local
ones, where clouds answer with credentials."""
_METADATA: Final = frozenset({ipaddress.ip_address("fd00:ec2::254"), ipaddress.ip_address("100.100.100.200")})
"""Metadata services of clouds within these networks."""


class NodeNetworks:
    """given: instead of the networks of homes and offices."""

    def __init__(self, given: Iterable[Network] = ()) -> None:
        self._given = tuple(given)

    def allow(self, address: Address) -> bool:
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        address = mapped or address
        if self._given:
            return any(address in network for network in self._given)
        return address not in _METADATA and any(address in network for network in HOME_NETWORKS)
