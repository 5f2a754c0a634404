"""Ports that tests give to servers."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Generator


@contextlib.contextmanager
def held_port() -> Generator[int]:
    """A port of 127.0.0.1 without a listener, where our servers can listen meanwhile.

    Linux gives it to no other socket that asks for any port, as outgoing connections do.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
