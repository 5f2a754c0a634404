"""The memory of all request bodies together: who goes first, who stays, and what is counted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from jan_serve.errors import Unavailable
from jan_serve.http.errors import Envelopes, HttpError, Problem
from jan_serve.http.guards import body as body_guard
from jan_serve.http.guards.body import SMALL_BYTES, BodyGuard, BodyMemory, held_body, trim_memory
from jan_serve.http.lifecycle import Lifecycle

pytestmark = pytest.mark.anyio
MIB = 1 << 20


class Client:
    """A request whose body arrives part by part. `ends` is set once the application may answer it."""

    def __init__(self, guard: BodyGuard, address: str, path: str = "/") -> None:
        self.ends = asyncio.Event()
        self._parts: asyncio.Queue[Message] = asyncio.Queue()
        self._seen = asyncio.Event()
        headers = [(b"content-type", b"application/json"), (b"transfer-encoding", b"chunked")]
        scope: Scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "headers": headers,
            "client": (address, 1),
            "client_of_test": self,
        }
        self._served = asyncio.create_task(guard(scope, self._receive, _never))

    async def _receive(self) -> Message:
        if self._parts.empty():
            self._seen.set()
        return await self._parts.get()

    async def sends(self, size: int, *, last: bool = False) -> None:
        """Returns when the server has taken the part, or has refused the body."""
        self._seen.clear()
        self._parts.put_nowait({"type": "http.request", "body": b"x" * size, "more_body": not last})
        taken = [self._served, asyncio.create_task(self.ends.wait() if last else self._seen.wait())]
        if last:
            taken[1].cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return
        await asyncio.wait(taken, return_when=asyncio.FIRST_COMPLETED)
        taken[1].cancel()

    async def problem(self) -> Problem | None:
        """The problem of a refused body; None if it was read."""
        self.ends.set()
        try:
            await asyncio.wait_for(self._served, 5)
        except HttpError as error:
            return error.problem
        return None

    def is_waiting(self) -> bool:
        return not self._served.done()

    async def leaves(self) -> None:
        self._served.cancel()
        with contextlib.suppress(asyncio.CancelledError, HttpError):
            await self._served


async def _never(message: Message) -> None:
    raise AssertionError(message)


async def _read_all(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive())["more_body"]:
        pass
    await scope["client_of_test"].ends.wait()


def guarded(memory: BodyMemory, **more: Any) -> BodyGuard:
    def render(problem: Problem) -> Any:
        raise AssertionError(problem)

    return BodyGuard(
        _read_all,
        envelopes=Envelopes({}, render),
        lifecycle=Lifecycle(),
        max_bytes=32 * MIB,
        memory=memory,
        **more,
    )


@contextlib.asynccontextmanager
async def clients(guard: BodyGuard, *addresses: str) -> AsyncGenerator[list[Client]]:
    made = [Client(guard, address) for address in addresses]
    try:
        yield made
    finally:
        for client in made:
            await client.leaves()


async def test_the_oldest_unfinished_body_goes_first() -> None:
    memory = BodyMemory(max_arriving=3 * MIB)
    async with clients(guarded(memory), *["10.0.0.1"] * 4) as (first, second, third, fourth):
        for client in (first, second, third, fourth):
            await client.sends(MIB)
        problem = await first.problem()
        assert problem is not None
        assert (problem.status, problem.code) == (503, "unavailable")
        assert problem.headers["retry-after"] == "2"
        assert problem.headers["connection"] == "close"
        assert all(client.is_waiting() for client in (second, third, fourth))
        assert memory.held == 3 * MIB
    assert memory.held == 0


async def test_the_client_that_has_sent_most_goes_before_an_older_one() -> None:
    memory = BodyMemory(max_arriving=4 * MIB)
    async with clients(guarded(memory), "10.0.0.1", *["10.0.0.2"] * 4) as (honest, *greedy):
        await honest.sends(MIB)
        for client in greedy:
            await client.sends(MIB)
        assert honest.is_waiting()
        assert await greedy[0].problem() is not None
        await honest.sends(MIB, last=True)
        assert await honest.problem() is None


async def test_many_large_bodies_hold_no_more_than_the_bound_and_small_ones_are_read() -> None:
    memory = BodyMemory(max_arriving=8 * MIB)
    guard = guarded(memory)
    async with clients(guard, *["10.0.0.1"] * 60) as greedy:
        for client in greedy:
            for _ in range(4):
                await client.sends(MIB)
                assert memory.held <= 8 * MIB
            small = Client(guard, "10.0.0.1")
            await small.sends(SMALL_BYTES, last=True)
            assert await small.problem() is None


async def test_complete_bodies_count_until_their_requests_end() -> None:
    memory = BodyMemory(max_arriving=8 * MIB, max_held=4 * MIB)
    guard = guarded(memory)
    async with clients(guard, *["10.0.0.1"] * 4) as held:
        for client in held:
            await client.sends(MIB, last=True)
        more = Client(guard, "10.0.0.2")
        await more.sends(MIB)
        problem = await more.problem()
        assert problem is not None
        assert problem.status == 503
        small = Client(guard, "10.0.0.2")
        await small.sends(100, last=True)
        assert await small.problem() is None
        assert await held[0].problem() is None
        again = Client(guard, "10.0.0.2")
        await again.sends(MIB, last=True)
        assert await again.problem() is None


async def test_a_refused_body_that_is_between_two_parts_is_refused_at_the_next() -> None:
    memory = BodyMemory(max_arriving=MIB)
    body = memory.open("10.0.0.1")
    body.receive(MIB)
    other = memory.open("10.0.0.2")
    with pytest.raises(Unavailable):
        other.receive(2 * MIB)
    assert (body.is_refused, other.is_refused) == (False, True)
    with pytest.raises(Unavailable):
        other.receive(1)
    assert memory.held == MIB


async def test_uploads_are_not_counted() -> None:
    memory = BodyMemory(max_arriving=MIB)
    upload = Client(guarded(memory, upload_paths=("/api/blobs",)), "10.0.0.1", "/api/blobs/sha256:1")
    for _ in range(5):
        await upload.sends(MIB)
    assert memory.held == 0
    await upload.sends(1, last=True)
    assert await upload.problem() is None


async def test_fetched_files_count_with_the_bodies_and_push_out_unfinished_ones() -> None:
    memory = BodyMemory(max_held=4 * MIB)
    arriving, fetching = memory.open("10.0.0.1"), memory.open("10.0.0.2")
    arriving.receive(2 * MIB)
    fetching.fetch(3 * MIB)
    assert arriving.is_refused
    with pytest.raises(Unavailable, match="more data than it has memory for"):
        fetching.fetch(2 * MIB)
    fetching.close()
    assert memory.held == 0


async def test_a_request_knows_what_it_holds() -> None:
    memory = BodyMemory()
    found: list[object] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        body = held_body.get()
        assert body is not None
        body.fetch(MIB)
        found.append(memory.held)

    guard = guarded(memory)
    guard.app = app
    client = Client(guard, "10.0.0.1")
    await client.sends(10, last=True)
    assert await client.problem() is None
    assert found == [MIB + 10]
    assert memory.held == 0


def test_memory_is_given_back_on_every_system() -> None:
    trim_memory()


@pytest.mark.parametrize(("sizes", "trims"), [((8 * MIB,), 1), ((8 * MIB, 8 * MIB), 1), ((MIB,), 0)])
async def test_the_memory_of_large_bodies_goes_back_to_the_system(
    sizes: tuple[int, ...], trims: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[None] = []
    monkeypatch.setattr(body_guard, "trim_memory", lambda: calls.append(None))
    monkeypatch.setattr(body_guard, "_TRIM_AFTER_S", 0.0)
    memory = BodyMemory()
    bodies = [memory.open("192.0.2.1") for _ in sizes]
    for body, size in zip(bodies, sizes, strict=True):
        body.receive(size)
        body.complete()
    await asyncio.sleep(0.02)
    assert calls == []  # the requests still hold them
    for body in bodies:
        body.close()
    async with asyncio.timeout(60):
        while len(calls) < trims:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.02)
    assert len(calls) == trims
