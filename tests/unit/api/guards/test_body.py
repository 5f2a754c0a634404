"""The time that a body may take to arrive."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message, Receive, Scope, Send

from jan_serve.api.errors import Envelopes, HttpError, Problem
from jan_serve.api.guards.body import BodyGuard
from tests.support.jumping_loop import run_jumping

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

    guard = BodyGuard(read_all, envelopes=Envelopes({}, never), max_bytes=1 << 40)  # pyright: ignore[reportArgumentType]
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
