"""Hostile connections as bytes, against a server that asks for a key and gets none; and a run of all of them.

`python -m tests.support.clients.attacks MINUTES` prints the memory of a server before and after, and the slowest
`/health`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from tests.support.servers.front_process import FrontProcess, front_process

HOST: Final = b"Host: localhost\r\n"
HEALTH: Final = b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n"
POST: Final = b"POST /v1/completions HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
CHUNKED: Final = POST + b"Transfer-Encoding: chunked\r\n\r\n"
UPGRADE: Final = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
PAUSE: Final = b""
"""In a stream of bytes: wait a little before the next ones."""
_PAUSE_S: Final = 0.02
_BLOCK: Final = 1 << 16
_ASK_FOR_HEALTH: Final = """
import http.client, sys, time
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=60)
while True:
    start = time.monotonic()
    try:
        connection.request("GET", "/health")
        response = connection.getresponse()
        response.read()
    except (ConnectionError, http.client.HTTPException):  # an idle connection's deadline, or the server's end
        connection.close()
    else:
        print(start, time.monotonic() - start, response.status, flush=True)
    time.sleep(float(sys.argv[2]))
"""


class Health(NamedTuple):
    """An answer of /health: when it was asked (time.monotonic), the seconds it took, its status."""

    start: float
    took_s: float
    status: int


@dataclass(frozen=True, slots=True)
class Attack:
    """What one connection sends: `head`, then `unit` again and again, as fast as it is taken or with pauses.

    units: None has no end. reads: whether the client takes what it is answered. half_closed: it sends FIN at the end.
    connections: so many at once, which makes what each costs visible.
    """

    head: bytes
    unit: bytes = b""
    units: int | None = None
    trickled: bool = False
    reads: bool = True
    half_closed: bool = False
    connections: int = 8

    def parts(self) -> Iterator[bytes]:
        """In the order in which they are sent."""
        yield self.head
        if not self.unit:
            return
        if self.trickled:
            for _ in itertools.count():
                yield PAUSE
                yield self.unit
        at_once = max(1, _BLOCK // len(self.unit))
        left = sys.maxsize if self.units is None else self.units
        while left > 0:
            yield self.unit * min(at_once, left)
            left -= at_once


ATTACKS: Final[dict[str, Attack]] = {
    "silence": Attack(b""),
    "empty lines": Attack(b"", b"\r\n"),
    "empty lines, trickled": Attack(b"", b"\r\n", trickled=True),
    "half a request line": Attack(b"GET /hea"),
    "a request line, trickled": Attack(b"GET /", b"a", trickled=True),
    "a target without end": Attack(b"GET /", b"a" * 64),
    "a field name without end": Attack(b"GET / HTTP/1.1\r\n", b"a" * 64),
    "a field value without end": Attack(b"GET / HTTP/1.1\r\nA: ", b"a" * 64),
    "white space without end": Attack(b"GET / HTTP/1.1\r\nA:", b" \t" * 32),
    "fields without end": Attack(b"GET / HTTP/1.1\r\n", b"a:\r\n"),
    "fields, trickled": Attack(b"GET / HTTP/1.1\r\n", b"a: b\r\n", trickled=True),
    "many small fields": Attack(b"GET / HTTP/1.1\r\n" + b"ab:cd\r\n" * 9000 + b"\r\n"),
    "zeros": Attack(b"", b"\0" * 64),
    "TLS": Attack(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\x5a" * 64),
    "HTTP/2": Attack(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0\0\0\4\0\0\0\0\0"),
    "a kept connection, then silence": Attack(HEALTH),
    "a kept connection, then an empty line": Attack(HEALTH + b"\r\n"),
    "a kept connection, then empty lines": Attack(HEALTH, b"\r\n"),
    "a kept connection, then empty lines, trickled": Attack(HEALTH, b"\r\n", trickled=True),
    "a kept connection, then half a head": Attack(HEALTH + b"GET / HTTP/1.1\r\nA"),
    "trailers without end": Attack(CHUNKED + b"2\r\n{}\r\n0\r\n", b"x-t: aaaaaaaaaa\r\n"),
    "trailers without a body": Attack(CHUNKED + b"0\r\n", b"x-t: aaaaaaaaaa\r\n"),
    "a trailer's name without end": Attack(CHUNKED + b"2\r\n{}\r\n0\r\n", b"a" * 64),
    "a trailer's value without end": Attack(CHUNKED + b"2\r\n{}\r\n0\r\nx: ", b"a" * 64),
    "trailers, trickled": Attack(CHUNKED + b"0\r\n", b"x: a\r\n", trickled=True),
    "trailers behind an upgrade": Attack(
        POST + UPGRADE + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"content-length: 1\r\n"
    ),
    "a chunk extension without end": Attack(CHUNKED + b"1;", b"a" * 64),
    "a chunk extension for each byte": Attack(CHUNKED, b"1;" + b"a" * 60_000 + b"\r\nx\r\n"),
    "a chunk size without end": Attack(CHUNKED, b"0" * 64),
    "chunks of one byte": Attack(CHUNKED, b"1\r\n \r\n"),
    "large chunks": Attack(CHUNKED, b"10000\r\n" + b" " * 0x10000 + b"\r\n"),
    "chunks, trickled": Attack(CHUNKED, b"1\r\n \r\n", trickled=True),
    "a refused body, partial": Attack(POST + b"Content-Length: 50\r\n\r\n{"),
    "a refused body, trickled": Attack(POST + b"Content-Length: 1000000\r\n\r\n", b" ", trickled=True),
    "a refused body without end": Attack(POST + b"Content-Length: 1000000000000\r\n\r\n", b" " * 64),
    "a refused body, to be closed": Attack(POST + b"Connection: close\r\nContent-Length: 50\r\n\r\n{"),
    "a refused body, HTTP/1.0": Attack(
        b"POST /v1/completions HTTP/1.0\r\n" + HOST + b"Content-Length: 50\r\n\r\n{"
    ),
    "a refused body that waits for leave": Attack(
        POST + b"Expect: 100-continue\r\nContent-Length: 50\r\n\r\n"
    ),
    "a body for another host": Attack(b"POST / HTTP/1.1\r\nHost: evil\r\nContent-Length: 50\r\n\r\n{"),
    "a body for nowhere": Attack(b"POST /nowhere HTTP/1.1\r\n" + HOST + b"Content-Length: 50\r\n\r\n{"),
    "a body for a preflight": Attack(
        b"OPTIONS /v1/models HTTP/1.1\r\n" + HOST + b"Origin: http://localhost\r\n"
        b"Access-Control-Request-Method: GET\r\nContent-Length: 50\r\n\r\n{"
    ),
    "a body for /health": Attack(HEALTH[:-2] + b"Content-Length: 50\r\n\r\n{"),
    "a body for HEAD /health": Attack(
        b"HEAD /health HTTP/1.1\r\n" + HOST + b"Content-Length: 50\r\n\r\n", b"{", trickled=True
    ),
    "chunks for /health": Attack(HEALTH[:-2] + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "a body behind an upgrade": Attack(HEALTH[:-2] + UPGRADE + b"Content-Length: 50\r\n\r\n{"),
    "many requests at once": Attack(b"", b"GET / HTTP/1.1\r\n\r\n", units=2_000, connections=2),
    "many requests at once, unread": Attack(b"", b"GET / HTTP/1.1\r\n\r\n", reads=False, connections=2),
    "many upgrades at once, unread": Attack(b"", HEALTH[:-2] + UPGRADE + b"\r\n", reads=False, connections=2),
    "many bodies at once, unread": Attack(
        b"", POST + b"Content-Length: 2\r\n\r\n{}", reads=False, connections=2
    ),
    "an unread answer": Attack(HEALTH, reads=False),
    "an unread refusal": Attack(b"GET / HTTP/1.1\r\n", b"a:\r\n", reads=False),
    "half of a body, half-closed": Attack(POST + b"Content-Length: 50\r\n\r\n{", half_closed=True),
    "a request, half-closed, unread": Attack(HEALTH, reads=False, half_closed=True),
}


async def _read(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while await loop.sock_recv(sock, _BLOCK):
        pass


async def _send(sock: socket.socket, attack: Attack) -> None:
    loop = asyncio.get_running_loop()
    for part in attack.parts():
        if part is PAUSE:
            await asyncio.sleep(_PAUSE_S)
        else:
            await loop.sock_sendall(sock, part)
    if attack.half_closed:
        sock.shutdown(socket.SHUT_WR)
    await asyncio.Event().wait()


@contextlib.asynccontextmanager
async def _connection(port: int, attack: Attack) -> AsyncGenerator[int]:
    """The value is its own port."""
    with socket.socket() as sock:
        if not attack.reads:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        tasks = [asyncio.create_task(_send(sock, attack))]
        if attack.reads:
            tasks.append(asyncio.create_task(_read(sock)))
        try:
            yield sock.getsockname()[1]
        finally:
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                # The server closes while we send: no other failure is expected.
                assert ended is None or isinstance(ended, asyncio.CancelledError | ConnectionError), ended


class Victim:
    """A server process as it is seen from outside."""

    def __init__(self, front: FrontProcess) -> None:
        self.front = front
        self._process = psutil.Process(front.process.pid)

    def ports(self) -> list[int]:
        """Ports of the clients whose connections are open."""
        found = self._process.net_connections("tcp")
        return [connection.raddr.port for connection in found if connection.raddr]

    async def endure(self, attack: Attack, limit_s: float) -> float:
        """Have them attack until all connections are closed; the seconds it took. Fails after the limit."""
        start = time.monotonic()
        async with contextlib.AsyncExitStack() as stack:
            ours = {
                await stack.enter_async_context(_connection(self.front.port, attack))
                for _ in range(attack.connections)
            }
            # Connections are accepted in their order: with an answer on this one there is none left to accept.
            reader, writer = await asyncio.open_connection("127.0.0.1", self.front.port)
            writer.write(HEALTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            await reader.read()
            writer.close()
            while not ours.isdisjoint(self.ports()):
                assert time.monotonic() - start < limit_s, f"open after {limit_s} s"
                await asyncio.sleep(_PAUSE_S)
        return time.monotonic() - start

    def resident(self) -> int:
        """Bytes of memory now."""
        return self._status("VmRSS")

    def peak(self) -> int:
        """Most bytes of memory since the last `forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        """Linux only."""
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5", encoding="ascii")

    def _status(self, name: str) -> int:
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="utf-8")
        found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024


def read_health(lines: Iterable[str]) -> Iterator[Health]:
    """What an asking process wrote. Its end may cut the last line short. Raises ValueError."""
    for line in lines:
        if line.endswith("\n"):
            start, took_s, status = line.split()
            yield Health(float(start), float(took_s), int(status))


@contextlib.contextmanager
def asked_for_health(port: int, pause_s: float = _PAUSE_S) -> Generator[list[Health]]:
    """Have another process ask for /health over and over meanwhile. Fails if that process ends by itself."""
    asked: list[Health] = []
    command = [sys.executable, "-c", _ASK_FOR_HEALTH, str(port), str(pause_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout is not None
        lines = asking.stdout

        def read() -> None:
            asked.extend(read_health(lines))

        reader = threading.Thread(target=read, name="health")
        reader.start()
        try:
            yield asked
            assert asking.poll() is None, "the process that asks for /health ended by itself"
        finally:
            asking.kill()
            reader.join()


def main() -> None:
    """All attacks in turn for some minutes, with short deadlines: what is left over shows after many connections."""
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    with (
        tempfile.TemporaryDirectory() as folder,
        front_process(Path(folder), 0.0, api_keys=("secret",), timeout_s=0.5) as front,
    ):
        victim = Victim(front)
        rounds: list[int] = []
        end = time.monotonic() + minutes * 60
        with asked_for_health(front.port) as asked:
            # After one round everything is loaded, and every pool of memory is filled.
            while not rounds or time.monotonic() < end:
                for attack in ATTACKS.values():
                    asyncio.run(victim.endure(attack, 60.0))
                rounds.append(victim.resident())
                print(f"round {len(rounds)}: {rounds[-1] / 1e6:.1f} MB", flush=True)
        took = [answer.took_s for answer in asked]
        slow = statistics.quantiles(took, n=100)
        print(
            f"grown by {(rounds[-1] - rounds[0]) / 1e6:.1f} MB; {len(took)} times /health:"
            f" median {slow[49] * 1e3:.1f}, p99 {slow[98] * 1e3:.0f}, slowest {max(took) * 1e3:.0f} ms"
        )


if __name__ == "__main__":
    main()
