"""The handshake over a socket, and the records of a connection with every byte changed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from jan_serve.errors import PeerFailed
from jan_serve.supervisor.kv_transfer.peer_connection import (
    MAX_NAME_BYTES,
    MAX_RECORD_BYTES,
    PeerConnection,
    accept,
    connect,
)

pytestmark = pytest.mark.anyio

KEY = bytes(range(32))
NAME = "http://d"

Accepted = tuple[str, PeerConnection] | PeerFailed


class Written:
    """A writer that keeps what is sent."""

    def __init__(self) -> None:
        self.data = b""

    def writelines(self, parts: tuple[bytes, ...]) -> None:
        self.data += b"".join(parts)

    async def drain(self) -> None: ...


def end_of(key: bytes = KEY, *, is_server: bool, data: bytes = b"", ends: bool = True) -> PeerConnection:
    """One end that reads these bytes. ends: nothing comes after them."""
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    if ends:
        reader.feed_eof()
    writer: Any = Written()
    return PeerConnection(reader, writer, key, is_server=is_server, patience_s=0.05)


async def sent(*bodies: bytes, is_server: bool = True) -> bytes:
    """What an end sends."""
    reader, writer = asyncio.StreamReader(), Written()
    any_writer: Any = writer
    connection = PeerConnection(reader, any_writer, KEY, is_server=is_server, patience_s=1.0)
    for body in bodies:
        await connection.send(body)
    return writer.data


async def received(data: bytes, *, is_server: bool = False, key: bytes = KEY) -> list[bytes]:
    """All records of an end, up to the close of the other."""
    connection = end_of(key, is_server=is_server, data=data)
    bodies: list[bytes] = []
    while (body := await connection.receive()) is not None:
        bodies.append(body)
    return bodies


# Records


@pytest.mark.parametrize("is_server", [True, False])
async def test_records_arrive_as_they_were_sent(is_server: bool) -> None:
    bodies = [b"one", b"", os.urandom(MAX_RECORD_BYTES), b"one"]
    assert await received(await sent(*bodies, is_server=is_server), is_server=not is_server) == bodies


async def test_a_changed_byte_is_noticed_wherever_it_is() -> None:
    data = await sent(b"first", b"second")
    for place in range(len(data)):
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises(PeerFailed):
            await received(changed)


async def test_a_record_that_is_cut_is_noticed_wherever_it_is() -> None:
    data = await sent(b"first", b"second")
    border = len(await sent(b"first"))
    for length in range(1, len(data)):
        if length == border:  # a peer may close between records
            assert await received(data[:length]) == [b"first"]
            continue
        with pytest.raises(PeerFailed, match="broke off the connection"):
            await received(data[:length])


async def test_records_of_another_place_are_noticed() -> None:
    one, two = await sent(b"one"), (await sent(b"one", b"two"))[len(await sent(b"one")) :]
    reflected = await sent(b"one", is_server=False)
    for data in (two, two + one, one + one, one + two + one, reflected):
        with pytest.raises(PeerFailed, match="was changed on the way"):
            await received(data)
    with pytest.raises(PeerFailed, match="was changed on the way"):
        await received(one, key=bytes(32))


async def test_a_record_that_is_announced_too_long_is_not_read() -> None:
    with pytest.raises(PeerFailed, match=f"announced a record of {MAX_RECORD_BYTES + 1} bytes"):
        await received(struct.pack("<I", MAX_RECORD_BYTES + 1))


@pytest.mark.parametrize("length", [0, 2, 9])
async def test_a_peer_that_falls_silent_is_given_up(length: int) -> None:
    connection = end_of(is_server=False, data=(await sent(b"first"))[:length], ends=False)
    with pytest.raises(PeerFailed, match="did not answer in time"):
        await connection.receive()


# The handshake


@contextlib.asynccontextmanager
async def listening(
    key_of: Callable[[str], bytes | None], *, handshake_s: float = 5.0
) -> AsyncGenerator[tuple[int, asyncio.Queue[Accepted]]]:
    """The port of a server, and what it accepts."""
    accepted: asyncio.Queue[Accepted] = asyncio.Queue()
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            accepted.put_nowait(await accept(reader, writer, key_of, handshake_s=handshake_s, patience_s=5.0))
        except PeerFailed as error:
            accepted.put_nowait(error)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield int(server.sockets[0].getsockname()[1]), accepted
        for writer in writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def connected(
    port: int, *, name: str = NAME, key: bytes = KEY, connect_s: float = 5.0
) -> PeerConnection:
    return await connect("127.0.0.1", port, name, key, connect_s=connect_s, patience_s=5.0)


async def test_both_ends_talk_after_the_handshake() -> None:
    asked: list[str] = []

    def key_of(name: str) -> bytes:
        asked.append(name)
        return KEY

    async with listening(key_of) as (port, accepted):
        client = await connected(port, name="http://dé")
        found = await accepted.get()
        assert not isinstance(found, PeerFailed)
        name, server = found
        assert name == "http://dé" and asked == [name]
        await client.send(b"ask")
        assert await server.receive() == b"ask"
        await server.send(b"answer")
        assert await client.receive() == b"answer"
        await client.close()
        assert await server.receive() is None


@pytest.mark.parametrize("known", [None, bytes(32)], ids=["unknown name", "other key"])
async def test_neither_end_believes_one_that_does_not_know_the_key(known: bytes | None) -> None:
    """And neither learns whether the name is known."""
    async with listening(lambda _: known) as (port, accepted):
        with pytest.raises(PeerFailed, match="The other server does not know the key of this link"):
            await connected(port)
        refused = await accepted.get()
        assert isinstance(refused, PeerFailed)
        assert "broke off" in refused.message, "the client proves nothing to such a server"


async def test_a_client_must_prove_itself_too() -> None:
    async with listening(lambda _: KEY) as (port, accepted):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(struct.pack("<5sH", b"JSKV\x01", len(NAME)) + NAME.encode() + bytes(32))
        proof = (await reader.readexactly(64))[32:]
        writer.write(proof)  # the server's own
        refused = await accepted.get()
        assert isinstance(refused, PeerFailed) and "does not know the key of its link" in refused.message
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    ("hello", "words"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "another protocol"),
        (struct.pack("<5sH", b"JSKV\x02", 3), "another protocol"),
        (struct.pack("<5sH", b"JSKV\x01", MAX_NAME_BYTES + 1), "another protocol"),
        (struct.pack("<5sH", b"JSKV\x01", 9) + b"abc", "did not answer in time"),
        (b"", "did not answer in time"),
    ],
)
async def test_who_speaks_otherwise_or_not_at_all_is_sent_away(hello: bytes, words: str) -> None:
    async with listening(lambda _: KEY, handshake_s=0.05) as (port, accepted):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(hello)
        refused = await accepted.get()
        assert isinstance(refused, PeerFailed) and words in refused.message
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_a_server_that_says_nothing_is_given_up() -> None:
    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        gone.set()

    gone = asyncio.Event()
    async with await asyncio.start_server(wait, "127.0.0.1", 0) as server:
        with pytest.raises(PeerFailed, match="did not answer in time"):
            await connected(int(server.sockets[0].getsockname()[1]), connect_s=0.05)
        await gone.wait()


async def test_nobody_listens() -> None:
    async with listening(lambda _: KEY) as (port, _):
        pass
    with pytest.raises(PeerFailed, match="cannot be reached"):
        await connected(port)


@pytest.mark.parametrize("host", ["a" * 70 + ".com", "local\0host", "a..b", "\ud800"])
async def test_a_host_that_cannot_be_one_is_a_peer_that_failed(host: str) -> None:
    with pytest.raises(PeerFailed, match="not the name or address of a host"):
        await connect(host, 9, "http://d", bytes(32), connect_s=5.0, patience_s=5.0)
