"""Which host names mean this machine. Nothing is looked up."""

from __future__ import annotations

import ipaddress


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a host is, in brackets or with a zone too; an IPv4 address written as IPv6 is the former.

    None for a name.
    """
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def is_loopback(host: str) -> bool:
    """Whether what is sent there stays on this machine: `localhost`, or a loopback address."""
    address = address_of(host)
    return host.lower() == "localhost" if address is None else address.is_loopback
