"""`jan-serve proxy` as users start it, and servers that join it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

from tests.integration.http.support import EXACT_FLAGS
from tests.support.clients.raw_http import get
from tests.support.processes import wait_until
from tests.support.servers.served import Served, running, serving

JOIN_LIMIT_S = 60.0


@contextlib.contextmanager
def proxying(folder: Path, *flags: str) -> Generator[Served]:
    """A proxy that remembers nothing and listens when the block begins."""
    command = [sys.executable, "-P", "-m", "jan_serve", "proxy", "--port", "0", "--forget", *flags]
    with running(folder, command) as proxy:
        proxy.url()
        yield proxy


@contextlib.contextmanager
def member(folder: Path, proxy: str, *flags: str) -> Generator[Served]:
    """A server with the built-in model that has joined the proxy when the block begins."""
    folder.mkdir(parents=True, exist_ok=True)
    before = len(nodes_of(proxy))
    with serving(folder, "--port", "0", "--proxy-url", proxy, *EXACT_FLAGS, *flags) as server:
        wait_until(lambda: len(nodes_of(proxy)) > before, JOIN_LIMIT_S)
        yield server


def nodes_of(proxy: str) -> list[dict[str, Any]]:
    """The nodes in detail."""
    found: list[dict[str, Any]] = get(proxy, "/extras/nodes").json()["nodes"]
    return found
