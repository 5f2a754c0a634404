"""A client over raw sockets that reads, dawdles, leaves or falls silent, and says exactly what it got."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import socket
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.chaos.questions import Question

PATIENCE_S: Final = 120.0
"""A request that has no end by then is lost."""


class Manner(StrEnum):
    """How a client behaves."""

    READS = "reads"
    DAWDLES = "dawdles"
    HALF_CLOSES = "half-closes"
    LEAVES = "leaves"
    FALLS_SILENT = "falls silent"


_WEIGHTS: Final = {
    Manner.READS: 12,
    Manner.DAWDLES: 2,
    Manner.HALF_CLOSES: 2,
    Manner.LEAVES: 3,
    Manner.FALLS_SILENT: 1,
}


class End(StrEnum):
    """How a request ended. CUT: the connection closed before a whole response. LOST: no end in time.

    WRONG: not the form of the dialect. LEFT: the client did not want its end.
    """

    ANSWER = "answer"
    ERROR = "error"
    CUT = "cut"
    LOST = "lost"
    WRONG = "wrong"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request. Times are those of time.monotonic. text: of the answer, as far as it came. detail: of an error.

    pause: the longest silence of a stream after its head, in seconds.
    """

    question: Question
    manner: Manner
    start: float
    end: float
    kind: End
    status: int = 0
    text: str = ""
    detail: str = ""
    pause: float = 0.0


@dataclass(slots=True)
class _Response:
    status: int
    body: bytes
    whole: bool
    pause: float = 0.0


def drawn_manner(draws: random.Random) -> Manner:
    return draws.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]


async def ask(
    port: int, question: Question, manner: Manner, draws: random.Random, silent: list[socket.socket]
) -> Outcome:
    """Send the question and follow it to its end. silent: takes the sockets of clients that fall silent."""
    start = time.monotonic()

    def outcome(kind: End, status: int = 0, text: str = "", detail: str = "", pause: float = 0.0) -> Outcome:
        return Outcome(question, manner, start, time.monotonic(), kind, status, text, detail, pause)

    data = _request(port, question)
    sock = socket.socket()
    try:
        sock.setblocking(False)
        if manner is Manner.DAWDLES:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        if manner is Manner.FALLS_SILENT:
            silent.append(sock)
            await _connect(sock, port, data[: draws.randrange(len(data))])
            return outcome(End.LEFT)
        response = await asyncio.wait_for(_exchange(sock, port, data, manner, draws), PATIENCE_S)
    except TimeoutError:
        return outcome(End.LOST, detail=f"no end after {PATIENCE_S:.0f} s")
    except OSError as error:
        return outcome(End.LEFT if manner is Manner.LEAVES else End.CUT, detail=str(error))
    finally:
        if manner is not Manner.FALLS_SILENT:
            sock.close()
    if response is None:
        return outcome(End.LEFT)
    return outcome(*_judged(question, response), response.pause)


def _request(port: int, question: Question) -> bytes:
    body = json.dumps(question.body).encode()
    head = (
        f"POST {question.path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"anthropic-version: 2023-06-01\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _connect(sock: socket.socket, port: int, data: bytes) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, ("127.0.0.1", port))
    await loop.sock_sendall(sock, data)


async def _exchange(
    sock: socket.socket, port: int, data: bytes, manner: Manner, draws: random.Random
) -> _Response | None:
    """The response; None for a client that left before its end."""
    await _connect(sock, port, data)
    if manner is Manner.LEAVES and draws.random() < 0.3:
        await asyncio.sleep(draws.uniform(0, 0.5))
        return None
    if manner is Manner.HALF_CLOSES:
        sock.shutdown(socket.SHUT_WR)
    reader = _Reader(sock, draws if manner is Manner.DAWDLES else None)
    response = _Response(0, b"", whole=False)
    with contextlib.suppress(EOFError):
        head = await reader.head()
        response.status = int(head.split(b" ", 2)[1])
        if manner is Manner.LEAVES:
            return None
        before = time.monotonic()
        async for part in reader.body(head.lower()):
            response.body += part
            if part.startswith(b":"):
                continue  # a comment
            response.pause, before = max(response.pause, time.monotonic() - before), time.monotonic()
        response.whole = True
    return response


class _Reader:
    """dawdles: pauses before each read."""

    def __init__(self, sock: socket.socket, dawdles: random.Random | None) -> None:
        self._sock = sock
        self._dawdles = dawdles
        self._data = b""

    async def _more(self) -> None:
        if self._dawdles is not None:
            await asyncio.sleep(self._dawdles.uniform(0, 0.2))
        part = await asyncio.get_running_loop().sock_recv(self._sock, 1024 if self._dawdles else 65536)
        if not part:
            raise EOFError
        self._data += part

    async def until(self, mark: bytes) -> bytes:
        while mark not in self._data:
            await self._more()
        found, _, self._data = self._data.partition(mark)
        return found + mark

    async def head(self) -> bytes:
        """The head of the response: those who half-close get interim ones before it."""
        while (head := await self.until(b"\r\n\r\n")).split(b" ", 2)[1].startswith(b"1"):
            pass
        return head

    async def exactly(self, size: int) -> bytes:
        while len(self._data) < size:
            await self._more()
        found, self._data = self._data[:size], self._data[size:]
        return found

    async def body(self, head: bytes) -> AsyncGenerator[bytes]:
        """head: in lower case. Raises EOFError where the body is not whole."""
        if b"\r\ntransfer-encoding: chunked\r\n" in head:
            while size := int((await self.until(b"\r\n")).strip(), 16):
                yield (await self.exactly(size + 2))[:-2]
            await self.exactly(2)
        else:
            length = re.search(rb"\r\ncontent-length: (\d+)\r\n", head)
            if length is None:
                raise ValueError(f"a body without an end: {head!r}")
            yield await self.exactly(int(length[1]))


def _judged(question: Question, response: _Response) -> tuple[End, int, str, str]:
    """An answer, an error in the form of the dialect, or neither; with status, text and detail."""
    status = response.status
    if status == 0:
        return End.CUT, 0, "", "no response"
    if not response.whole and not (question.is_stream and status == 200):
        return End.CUT, status, "", f"after {len(response.body)} bytes of a body"
    try:
        if status != 200:
            return End.ERROR, status, "", question.error(response.body)
        told = question.told(response.body)
    except (KeyError, TypeError, ValueError) as wrong:
        return End.WRONG, status, "", f"not the form of the dialect ({wrong!r}): {response.body[-300:]!r}"
    match (told.ended, len(told.errors), response.whole):
        case (True, 0, True):
            return End.ANSWER, status, told.text, ""
        case (False, 1, _):
            return End.ERROR, status, told.text, told.errors[0]
        case (False, 0, False):
            return End.CUT, status, told.text, "inside a stream"
        case _:
            return End.WRONG, status, told.text, f"neither an answer nor one error: {response.body[-300:]!r}"
