from __future__ import annotations

import asyncio

import pytest

from jan_serve.http.lifecycle import Lifecycle

pytestmark = pytest.mark.anyio


async def test_probes_do_not_count() -> None:
    lifecycle = Lifecycle()
    with lifecycle.request(counted=False):
        assert lifecycle.open_requests == 0
        await lifecycle.wait_idle()


async def test_idle_waits_for_the_last_request_also_when_one_fails() -> None:
    lifecycle = Lifecycle()
    with lifecycle.request(counted=True):
        with pytest.raises(ValueError), lifecycle.request(counted=True):
            assert lifecycle.open_requests == 2
            raise ValueError
        waiting = asyncio.ensure_future(lifecycle.wait_idle())
        await asyncio.sleep(0)
        assert (lifecycle.open_requests, waiting.done(), lifecycle.idle_s) == (1, False, 0.0)
    await asyncio.wait_for(waiting, 20)
    assert lifecycle.open_requests == 0


async def test_a_second_drain_right_after_the_first_one_fails_nothing() -> None:
    """Two signals at once: the timeouts of bodies expire already, and those cannot be changed."""
    lifecycle = Lifecycle()

    async def body() -> None:
        async with asyncio.timeout(None) as timeout:
            with lifecycle.body(timeout):
                await asyncio.Event().wait()

    waiting = asyncio.ensure_future(body())
    await asyncio.sleep(0)
    lifecycle.drain()
    await asyncio.sleep(0)
    lifecycle.drain()
    with pytest.raises(TimeoutError):
        await waiting
