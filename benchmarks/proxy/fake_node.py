"""Many nodes in one process, one port each: `python -m benchmarks.proxy.fake_node COUNT WAIT_MS`. Prints their ports.

They answer after that time; streams have 20 events 10 ms apart. A protocol without a framework, so that the nodes cost
less than what is measured.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, Final

import uvloop

EVENTS: Final = 20
EVENT_S: Final = 0.01
_BODY: Final = json.dumps(
    {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 2, "total_tokens": 102},
    }
).encode()
_HEALTH: Final = b'{"status":"healthy"}'
_MODELS: Final = b'{"object":"list","data":[{"id":"m","object":"model"}]}'
_EVENT: Final = (
    b'data: {"id":"1","object":"chat.completion.chunk","choices":[{"delta":{"content":"word "}}]}\n\n'
)
_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _whole(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Node(asyncio.Protocol):
    """One connection of one node."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._data = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, mark, rest = self._data.partition(b"\r\n\r\n")
        if not mark:
            return
        if not head.split(b"\r\n", 1)[0].endswith(b" HTTP/1.1"):
            self._transport.close()  # some try HTTP/2 first
            return
        lower = head.lower()
        start = lower.find(b"content-length:")
        length = int(lower[start + 15 :].split(b"\r\n", 1)[0]) if start >= 0 else 0
        if len(rest) < length:
            return
        self._data = rest[length:]
        self._answer(head.split(b" ", 2)[1], rest[:length])

    def _answer(self, path: bytes, body: bytes) -> None:
        loop = asyncio.get_running_loop()
        if path == b"/v1/models":
            self._transport.write(_whole(_MODELS))
        elif not body:
            self._transport.write(_whole(_HEALTH))
        elif b'"stream": true' in body or b'"stream":true' in body:
            loop.call_later(self._wait_s, self._event, EVENTS)
        else:
            loop.call_later(self._wait_s, self._transport.write, _whole(_BODY))

    def _event(self, left: int) -> None:
        if self._transport.is_closing():
            return
        if left == EVENTS:
            self._transport.write(_HEAD)
        if left == 0:
            self._transport.write(_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
            return
        self._transport.write(_chunk(_EVENT))
        asyncio.get_running_loop().call_later(EVENT_S, self._event, left - 1)


async def main(count: int, wait_s: float) -> None:
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(lambda: Node(wait_s), "127.0.0.1", 0) for _ in range(count)]
    print(json.dumps([server.sockets[0].getsockname()[1] for server in servers]), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), float(sys.argv[2]) / 1000))
