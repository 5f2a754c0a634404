"""Both ends of the pipe, over real pipes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import struct
import threading
from collections.abc import AsyncGenerator, Iterator

import pytest

from jan_serve.errors import ProtocolError
from jan_serve.ipc.async_channel import AsyncChannel
from jan_serve.ipc.channel import EVENTS, REQUESTS, BlockingChannel
from jan_serve.ipc.child_pipe import LENGTH, body_length
from jan_serve.ipc.messages import (
    Detokenized,
    DetokenizeRequest,
    LoadProgress,
    PingRequest,
    TokenizeRequest,
    WorkerEvent,
    WorkerRequest,
)

pytestmark = pytest.mark.anyio

HUGE = struct.pack("<I", 2**32 - 1)


class Wire:
    """A BlockingChannel with the far ends of its two pipes as raw descriptors."""

    def __init__(self) -> None:
        worker_in, self.to_worker = os.pipe()
        self.from_worker, worker_out = os.pipe()
        self.channel = BlockingChannel(worker_in, worker_out)

    def hang_up(self) -> None:
        os.close(self.to_worker)
        self.to_worker = -1

    def close(self) -> None:
        self.channel.close()
        for descriptor in (self.to_worker, self.from_worker):
            if descriptor >= 0:
                os.close(descriptor)


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.close()


def test_the_blocking_end_reads_requests_in_order_and_then_the_end(wire: Wire) -> None:
    sent: list[WorkerRequest] = [PingRequest(1), TokenizeRequest(id=2, text="x" * 5000), PingRequest(3)]
    os.write(wire.to_worker, b"".join(REQUESTS.encode(request) for request in sent))
    wire.hang_up()
    assert [wire.channel.receive() for _ in range(4)] == [*sent, None]


def test_the_blocking_end_joins_a_frame_that_comes_in_pieces(wire: Wire) -> None:
    request = DetokenizeRequest(id=1, tokens=tuple(range(100)))
    received: list[WorkerRequest | None] = []
    reader = threading.Thread(target=lambda: received.append(wire.channel.receive()))
    reader.start()
    for byte in REQUESTS.encode(request):
        os.write(wire.to_worker, bytes([byte]))
    reader.join(10)
    assert received == [request]


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 20])
def test_the_blocking_end_refuses_a_frame_that_is_cut_off(wire: Wire, cut: int) -> None:
    os.write(wire.to_worker, REQUESTS.encode(TokenizeRequest(id=2, text="hello world"))[:cut])
    wire.hang_up()
    with pytest.raises(ProtocolError):
        wire.channel.receive()


def test_the_blocking_end_refuses_four_gigabytes_before_it_takes_memory(wire: Wire) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    os.write(wire.to_worker, HUGE + b"x")
    with pytest.raises(ProtocolError, match="announces 4294967295 bytes"):
        wire.channel.receive()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 * 1024


def test_frames_of_many_threads_are_not_mixed(wire: Wire) -> None:
    def send(name: str) -> None:
        for number in range(50):
            wire.channel.send(Detokenized(number, name * 3000))

    threads = [threading.Thread(target=send, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    seen: dict[str, list[int]] = {name: [] for name in "abcd"}
    with open(wire.from_worker, "rb", closefd=False) as stream:
        for _ in range(200):
            length = body_length(stream.read(LENGTH.size), EVENTS.limit)
            event = EVENTS.decode(stream.read(length))
            assert isinstance(event, Detokenized)
            assert set(event.text) == {event.text[0]}
            seen[event.text[0]].append(event.id)
    for thread in threads:
        thread.join(10)
    assert all(ids == list(range(50)) for ids in seen.values())


def test_sending_to_a_front_that_is_gone_is_a_broken_pipe(wire: Wire) -> None:
    os.close(wire.from_worker)
    wire.from_worker = -1
    with pytest.raises(BrokenPipeError):
        wire.channel.send(LoadProgress(0.5))


class Ends:
    """An AsyncChannel over real pipes, with the worker's ends as raw descriptors."""

    def __init__(self, channel: AsyncChannel, worker_reads: int, worker_writes: int) -> None:
        self.channel = channel
        self.worker_reads = worker_reads
        self.worker_writes = worker_writes

    def say(self, *events: WorkerEvent) -> None:
        os.write(self.worker_writes, b"".join(EVENTS.encode(event) for event in events))

    def hang_up(self) -> None:
        os.close(self.worker_writes)
        self.worker_writes = -1


@contextlib.asynccontextmanager
async def async_ends() -> AsyncGenerator[Ends]:
    loop = asyncio.get_running_loop()
    front_reads, worker_writes = os.pipe()
    worker_reads, front_writes = os.pipe()
    reader = asyncio.StreamReader()
    read_transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(front_reads, "rb", 0)
    )
    write_transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(front_writes, "wb", 0)
    )
    writer = asyncio.StreamWriter(write_transport, protocol, reader, loop)
    ends = Ends(AsyncChannel(reader, writer), worker_reads, worker_writes)
    try:
        yield ends
    finally:
        read_transport.close()
        if not write_transport.is_closing():
            write_transport.abort()
        for descriptor in (ends.worker_reads, ends.worker_writes):
            if descriptor >= 0:
                os.close(descriptor)
        await asyncio.sleep(0)


async def test_the_async_end_reads_events_in_order_and_then_the_end() -> None:
    sent: list[WorkerEvent] = [LoadProgress(0.5), Detokenized(1, "é" * 5000), LoadProgress(1.0)]
    async with async_ends() as ends:
        ends.say(*sent)
        ends.hang_up()
        assert [await ends.channel.receive() for _ in range(4)] == [*sent, None]


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 20])
async def test_the_async_end_refuses_a_frame_that_is_cut_off(cut: int) -> None:
    async with async_ends() as ends:
        os.write(ends.worker_writes, EVENTS.encode(Detokenized(1, "hello world"))[:cut])
        ends.hang_up()
        with pytest.raises(ProtocolError):
            await ends.channel.receive()


async def test_the_async_end_refuses_four_gigabytes_before_it_takes_memory() -> None:
    async with async_ends() as ends:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        os.write(ends.worker_writes, HUGE + b"x")
        with pytest.raises(ProtocolError, match="announces 4294967295 bytes"):
            await ends.channel.receive()
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 * 1024


async def test_sending_waits_for_a_worker_that_does_not_read_and_keeps_the_frame_whole() -> None:
    request = TokenizeRequest(id=1, text="x" * 1_000_000)
    frame = REQUESTS.encode(request)
    async with async_ends() as ends:
        sending = asyncio.ensure_future(ends.channel.send(request))
        await asyncio.sleep(0)
        assert not sending.done()
        sending.cancel()
        received = bytearray()
        while len(received) < len(frame):
            received += await asyncio.to_thread(os.read, ends.worker_reads, 65536)
        assert received == frame
        with contextlib.suppress(asyncio.CancelledError):
            await sending


async def test_sending_to_a_worker_that_is_gone_raises_or_is_dropped_but_never_hangs() -> None:
    async with async_ends() as ends:
        os.close(ends.worker_reads)
        ends.worker_reads = -1
        with pytest.raises(ConnectionError):
            for _ in range(1000):
                await ends.channel.send(PingRequest(1))
                await asyncio.sleep(0)
        ends.channel.send_nowait(PingRequest(2))
