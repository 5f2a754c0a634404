"""Networks whose clients may call some routes without a key."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

from starlette.types import Scope

from jan_serve.http.paths import is_below

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
