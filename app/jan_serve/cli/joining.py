"""The command with which a server joins a proxy, as people may copy it."""

from __future__ import annotations

import socket
from typing import Final
from urllib.parse import urlsplit

from jan_serve.core.hosts import is_loopback

_ELSEWHERE: Final = "192.0.2.1", 9
"""An address of documentation: no packet goes there."""


def join_line(url: str, *, with_key: bool, node_auth: str) -> str:
    """url: of the proxy. with_key: it requires a key. node_auth: the flags by which a server that other machines can
    reach lets the proxy in."""
    key = " --proxy-key PROXY_KEY" if with_key else ""
    if is_loopback(urlsplit(url).hostname or ""):
        return f"On this machine: jan-serve serve --proxy-url {url}{key}"
    return f"On another machine: jan-serve serve --host 0.0.0.0 {node_auth} --proxy-url {url}{key}"


def own_address() -> str:
    """The address from which this machine reaches others; its name without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(_ELSEWHERE)
        except OSError:
            return socket.gethostname()
        return sock.getsockname()[0]
