"""Looking at a silent node."""

from __future__ import annotations

import asyncio

import pytest

from jan_serve.proxy.forwarding import Patience
from jan_serve.proxy.upstream.connection import Failure, NodeFailure

pytestmark = pytest.mark.anyio


async def test_it_looks_again_until_it_is_over() -> None:
    looks = iter([0.001, 0.001])

    def next_look_s() -> float:
        for again_s in looks:
            return again_s
        raise NodeFailure(Failure.SILENT, "gave no sign of life")

    with pytest.raises(NodeFailure, match="no sign of life") as caught:
        async with Patience(0.001, next_look_s):
            await asyncio.Event().wait()
    assert caught.value.kind is Failure.SILENT


async def test_what_ends_in_time_is_left_alone() -> None:
    async with Patience(60.0, lambda: 0.0):
        await asyncio.sleep(0)


async def test_a_client_that_leaves_as_the_patience_ends_is_a_client_that_leaves() -> None:
    """Both cancel the block: no failure may take the place of the other cancellation."""

    async def wait() -> None:
        task = asyncio.current_task()
        assert task is not None

        def next_look_s() -> float:
            task.cancel()
            raise NodeFailure(Failure.SILENT, "gave no sign of life")

        async with Patience(0.0, next_look_s):
            await asyncio.Event().wait()

    waiting = asyncio.create_task(wait())
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert waiting.cancelled()


async def test_a_timeout_of_the_block_is_not_taken_for_it() -> None:
    with pytest.raises(TimeoutError):
        async with Patience(60.0, lambda: 0.0):
            raise TimeoutError


async def test_other_failures_pass() -> None:
    with pytest.raises(NodeFailure, match="closed"):
        async with Patience(60.0, lambda: 0.0):
            raise NodeFailure(Failure.RESET, "closed")
