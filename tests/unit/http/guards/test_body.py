"""Limits on bodies: the time to arrive, and types, encodings, sizes and syntax over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from jan_serve.http.errors import Envelopes, HttpError, Problem
from jan_serve.http.guards.body import BodyGuard
from jan_serve.http.lifecycle import Lifecycle
from tests.support.fronts import http_client, refused
from tests.support.jumping_loop import run_jumping

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
