"""The command with which a server joins a proxy, as people may copy it."""

from __future__ import annotations

import socket
from typing import Final
from urllib.parse import urlsplit

from jan_serve.core.hosts import is_loopback

_ELSEWHERE: Final = "http://192.0.2.1:9"
"""An address of documentation: no packet goes there."""


def join_line(url: str, *, proxy_key: bool, node_key: bool) -> str:
    """url: of the proxy. proxy_key: servers that join present a management key. node_key: they have the proxy's key of
    nodes."""
    auth = "--api-key NODE_KEY " if node_key else ""
    key = " --proxy-key PROXY_KEY" if proxy_key else ""
    if is_loopback(urlsplit(url).hostname or ""):
        return f"On this machine: jan-serve serve {auth}--proxy-url {url}{key}"
    return f"On another machine: jan-serve serve --host 0.0.0.0 {auth or '--no-auth '}--proxy-url {url}{key}"


def own_address() -> str:
    """The address from which this machine reaches others; its name without a network."""
    from jan_serve.membership.member import address_towards  # only a proxy on every address needs it

    return address_towards(_ELSEWHERE) or socket.gethostname()
