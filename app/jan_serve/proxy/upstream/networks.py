"""Networks that nodes may be in: whoever may add nodes must not make the proxy call anything else."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

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
