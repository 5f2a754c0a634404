"""Recognises hosts that are this machine, without name resolution."""

from __future__ import annotations

import ipaddress


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
