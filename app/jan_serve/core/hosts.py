"""Hosts that are this machine, without name resolution; and URLs of hosts."""

from __future__ import annotations

import ipaddress
from typing import Final

_LOOPBACK_OF: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The IP address of a host, which may have brackets or a zone; None for a name.

    An IPv4-mapped IPv6 address gives the IPv4 address.
    """
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def is_loopback(host: str) -> bool:
    """Whether the host is `localhost` or a loopback address."""
    address = address_of(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def is_everywhere(host: str) -> bool:
    """Whether a server with this host listens on every address."""
    return host in _LOOPBACK_OF


def url_of_host(host: str, port: int) -> str:
    """The URL at which clients on this machine reach a host."""
    host = _LOOPBACK_OF.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
