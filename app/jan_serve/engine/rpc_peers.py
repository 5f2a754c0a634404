"""Connects a worker to the devices of other machines. Peers that do not answer are left out, with the reason.

ggml ends the process on a peer that refuses, hangs up or speaks another version, so each is greeted here first.
"""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from jan_serve.engine.llama import rpc

logger = logging.getLogger(__name__)

PROTOCOL: Final = (7, 0)
"""RPC_PROTO_MAJOR_VERSION, RPC_PROTO_MINOR_VERSION of ggml-rpc.h in the pinned llama.cpp."""
_HELLO: Final = 14  # RPC_CMD_HELLO
_CAPABILITIES: Final = 24  # RPC_CONN_CAPS_SIZE
_ANSWER: Final = struct.Struct("<QBBBx")
_CONNECT_S: Final = 5.0
_ANSWER_S: Final = 20.0
"""A peer of ours starts a process for a new client."""


def connect_peers(endpoints: Sequence[str]) -> dict[str, str]:
    """Register the devices of those that answer; blocks. Returns the reasons of the others, by endpoint.

    Raises SettingsError if llama.cpp is built without RPC.
    """
    if not endpoints:
        return {}
    rpc.check_built()
    with ThreadPoolExecutor(len(endpoints)) as pool:
        problems = dict(zip(endpoints, pool.map(problem_of, endpoints), strict=True))
    missing: dict[str, str] = {}
    for endpoint, problem in problems.items():
        if problem is None:
            rpc.add_server(endpoint)
        else:
            missing[endpoint] = problem
            logger.warning("rpc: %s is left out: %s", endpoint, problem)
    return missing


def problem_of(endpoint: str) -> str | None:
    """Why a peer cannot be used; None if it greets back. Blocks for seconds at most."""
    host, _, port = endpoint.rpartition(":")
    try:
        # As ggml resolves it: to IPv4 alone.
        address = socket.gethostbyname(host)
        with socket.create_connection((address, int(port)), timeout=_CONNECT_S) as connection:
            connection.settimeout(_ANSWER_S)
            connection.sendall(struct.pack("<BQ", _HELLO, _CAPABILITIES) + bytes(_CAPABILITIES))
            answer = _received(connection, _ANSWER.size)
    except TimeoutError:
        return "it does not answer in time, or serves another client"
    except OSError as error:
        return f"it cannot be reached: {error.strerror or error}"
    except UnicodeError:
        return "it cannot be reached: its name is not a host name"
    if answer is None:
        return "it hung up: its network allow-list may lack this machine"
    _, major, minor, patch = _ANSWER.unpack(answer)
    if major != PROTOCOL[0] or minor > PROTOCOL[1]:
        ours = ".".join(map(str, PROTOCOL))
        return f"it speaks version {major}.{minor}.{patch} of ggml's RPC protocol, and this server {ours}"
    return None


def _received(connection: socket.socket, size: int) -> bytes | None:
    """None if the peer hangs up before."""
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            return None
        data += piece
    return data
