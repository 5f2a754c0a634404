"""A request ends at its time limit, or with the error of the server that stops it."""

from __future__ import annotations

import asyncio

import pytest

from jan_serve.errors import DeadlineExceeded, Draining
from jan_serve.generation.deadline import Deadline, RunningRequests

pytestmark = pytest.mark.anyio


async def waits_for_ever() -> None:
    await asyncio.Event().wait()


async def test_a_wait_within_the_limit_passes_results_and_errors() -> None:
    async def times_out() -> None:
        raise TimeoutError("of its own")

    for limit_s in (None, 60.0):
        deadline = Deadline(limit_s)
        assert await deadline.wait(asyncio.sleep(0, "done")) == "done"
        with pytest.raises(TimeoutError, match="of its own"):
            await deadline.wait(times_out())


async def test_the_limit_counts_from_the_start_over_all_waits() -> None:
    deadline = Deadline(0.01)
    with pytest.raises(DeadlineExceeded, match=r"longer than 0\.01 s"):
        await deadline.wait(waits_for_ever())
    with pytest.raises(DeadlineExceeded):
        await deadline.wait(waits_for_ever())


async def test_every_wait_of_an_expired_request_raises_the_reason() -> None:
    running = RunningRequests(None)
    with running.enter() as deadline, running.enter() as other:
        assert len(running) == 2
        waits = [asyncio.create_task(each.wait(waits_for_ever())) for each in (deadline, deadline, other)]
        await asyncio.sleep(0)
        running.expire_all(Draining("stopping", retry_after=1.0))
        results = await asyncio.gather(*waits, return_exceptions=True)
        assert [str(result) for result in results] == ["stopping"] * 3
        with pytest.raises(Draining):
            await deadline.wait(waits_for_ever())
    assert len(running) == 0


async def test_a_request_that_ended_is_not_expired() -> None:
    running = RunningRequests(None)
    with pytest.raises(ValueError), running.enter() as deadline:
        raise ValueError
    running.expire_all(Draining("stopping", retry_after=1.0))
    assert await deadline.wait(asyncio.sleep(0, "done")) == "done"


async def test_a_cancellation_stays_a_cancellation() -> None:
    task = asyncio.create_task(Deadline(60.0).wait(waits_for_ever()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
