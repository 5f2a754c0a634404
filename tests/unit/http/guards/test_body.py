"""Limits on request bodies: each alone, and the memory of all together."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from jan_serve.errors import Unavailable
from jan_serve.http.errors import Envelopes, HttpError, Problem
from jan_serve.http.guards import body as body_guard
from jan_serve.http.guards.body import SMALL_BYTES, BodyGuard, BodyMemory, held_body, trim_memory
from jan_serve.http.lifecycle import Lifecycle
from tests.support.jumping_loop import run_jumping
from tests.support.servers.fronts import http_client, refused

pytestmark = pytest.mark.anyio


MIB = 1 << 20


async def _arrive(pieces: int, size: int, interval_s: float) -> tuple[Problem | None, float]:
    """The refusal of a body that arrives in pieces, None where it was read; and when that was."""
    left = pieces

    async def receive() -> Message:
        nonlocal left
        await asyncio.sleep(interval_s)
        left -= 1
        return {"type": "http.request", "body": b" " * size, "more_body": left > 0}

    async def read_all(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["more_body"]:
            pass

    async def send(message: Message) -> None:
        raise AssertionError(message)

    def never(problem: Problem) -> None:
        raise AssertionError(problem)

    guard = BodyGuard(read_all, envelopes=Envelopes({}, never), lifecycle=Lifecycle(), max_bytes=1 << 40)  # pyright: ignore[reportArgumentType]
    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "headers": [(b"content-type", b"application/json"), (b"transfer-encoding", b"chunked")],
    }
    try:
        await guard(scope, receive, send)
    except HttpError as error:
        return error.problem, asyncio.get_running_loop().time()
    return None, asyncio.get_running_loop().time()


@pytest.mark.parametrize(
    ("pieces", "size", "interval_s", "until_s"),
    [
        (29, 1, 1.0, 29.0),  # within the 30 s that each body has
        (200, MIB, 0.5, 100.0),  # fast: each MiB earns a second
        (200, MIB, 1.0, 200.0),
    ],
)
def test_a_body_that_keeps_its_pace_is_read(
    pieces: int, size: int, interval_s: float, until_s: float
) -> None:
    problem, at_s = run_jumping(_arrive(pieces, size, interval_s))
    assert problem is None
    assert at_s == pytest.approx(until_s)


@pytest.mark.parametrize(
    ("size", "interval_s", "latest_s"),
    [
        (1, 0.02, 30.1),  # trickles: what a byte earns is nothing
        (0, 31.0, 30.0),
        (MIB // 2, 1.0, 61.0),  # half as fast as it must be: twice the time
        (MIB, 3.0, 45.0),
    ],
)
def test_a_slow_body_is_refused(size: int, interval_s: float, latest_s: float) -> None:
    problem, at_s = run_jumping(_arrive(100_000, size, interval_s))
    assert problem is not None
    assert (problem.status, problem.code) == (408, "request_timeout")
    assert 30.0 <= at_s <= latest_s


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "",
        "application/jsonx",
        "text/json",
    ],
)
async def test_other_types_than_json_are_refused_from_pages(
    client: httpx.AsyncClient, content_type: str
) -> None:
    """A page can send some of them without a preflight."""
    for page in ({"origin": "http://localhost:3000"}, {"sec-fetch-site": "none"}):
        response = await client.post(
            "/extras/tokenize", content=b'{"input":"a"}', headers={"content-type": content_type, **page}
        )
        refused(response, 415, "unsupported_media_type")


@pytest.mark.parametrize(
    ("content_type", "status", "code"),
    [
        ("multipart/form-data; boundary=x", 400, "invalid_request"),
        ("text/plain", 415, "unsupported_media_type"),
    ],
)
async def test_a_page_sends_a_form_where_a_form_is_read(
    client: httpx.AsyncClient, content_type: str, status: int, code: str
) -> None:
    """The refusal of 400 is that of the route, which read the form."""
    headers = {"origin": "http://localhost:3000", "content-type": content_type}
    response = await client.post("/v1/audio/transcriptions", content=b"--x--\r\n", headers=headers)
    refused(response, status, code)


async def test_a_page_of_another_site_sends_no_form(client: httpx.AsyncClient) -> None:
    headers = {"origin": "http://evil.com", "content-type": "multipart/form-data; boundary=x"}
    response = await client.post("/v1/audio/transcriptions", content=b"--x--\r\n", headers=headers)
    refused(response, 403, "forbidden_origin")


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "", None])
async def test_a_program_needs_no_type(client: httpx.AsyncClient, content_type: str | None) -> None:
    """`curl -d` sends that of a form."""
    headers = {} if content_type is None else {"content-type": content_type}
    response = await client.post("/extras/tokenize", content=b'{"input":"a"}', headers=headers)
    assert response.status_code == 200


async def test_a_page_without_a_type_is_refused(client: httpx.AsyncClient) -> None:
    headers = {"origin": "http://localhost:3000"}
    response = await client.post("/extras/tokenize", content=b'{"input":"a"}', headers=headers)
    refused(response, 415, "unsupported_media_type")


@pytest.mark.parametrize(
    "content_type", ["application/json; charset=utf-8", "Application/JSON", "application/vnd.x+json"]
)
async def test_json_types_are_taken(client: httpx.AsyncClient, content_type: str) -> None:
    response = await client.post(
        "/extras/tokenize", content=b'{"input":"a"}', headers={"content-type": content_type}
    )
    assert response.status_code == 200


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "identity, gzip"])
async def test_compressed_bodies_are_refused(client: httpx.AsyncClient, encoding: str) -> None:
    headers = {"content-type": "application/json", "content-encoding": encoding}
    response = await client.post("/extras/tokenize", content=b"\x1f\x8b", headers=headers)
    refused(response, 415, "unsupported_media_type")


async def test_the_limit_holds_with_and_without_a_length() -> None:
    async def chunks(count: int) -> AsyncIterator[bytes]:
        yield b'{"input":"'
        for _ in range(count):
            yield b"a" * 512
        yield b'"}'

    async with http_client(max_body_bytes=4096) as client:
        headers = {"content-type": "application/json"}
        for count, status in ((4, 200), (100, 413)):
            response = await client.post("/extras/tokenize", content=chunks(count), headers=headers)
            assert response.status_code == status
        response = await client.post("/extras/tokenize", json={"input": "a" * 5000})
        refused(response, 413, "body_too_large")
        assert response.headers["connection"] == "close"
        assert "4096" in response.json()["error"]["message"]


async def test_nesting_is_refused_over_http(client: httpx.AsyncClient) -> None:
    for body in (b'{"x":' + b"[" * 20000 + b"]" * 20000 + b"}", b'{"tools":' + b"[" * 20000):
        response = await client.post(
            "/v1/chat/completions", content=body, headers={"content-type": "application/json"}
        )
        refused(response, 400, "invalid_json")


@pytest.mark.parametrize("body", [b"\xff\xfe", b"not json", b"{'a':1}", b" "])
async def test_bad_text_is_refused_over_http(client: httpx.AsyncClient, body: bytes) -> None:
    response = await client.post(
        "/v1/chat/completions", content=body, headers={"content-type": "application/json"}
    )
    refused(response, 400, "invalid_json")


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
