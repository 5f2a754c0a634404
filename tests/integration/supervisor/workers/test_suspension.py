"""The machine slept: a worker that was suspended together with its server is not stalled."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncGenerator, Callable

import pytest

from jan_serve.core.models import ModelFacts
from jan_serve.errors import EngineFailure, EngineStalled
from jan_serve.ipc.messages import Chunk, EngineRequest, LoadModel, ReadState
from jan_serve.supervisor.limits import WorkerLimits
from jan_serve.supervisor.workers.engine_client import WorkerEngineClient
from jan_serve.supervisor.workers.worker_process import WorkerProcess
from tests.support.engines import FAKE_ENGINE
from tests.support.processes import until

HOUR = 3600.0


class Sleep:
    """A clock that can be put forward, as those of machines that count their sleep."""

    def __init__(self) -> None:
        self._slept_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self._slept_s

    def wake_after(self, seconds: float) -> None:
        """The machine wakes up now."""
        self._slept_s += seconds


@contextlib.asynccontextmanager
async def streaming(
    clock: Callable[[], float], silent_s: float
) -> AsyncGenerator[tuple[WorkerProcess, asyncio.Task[int]]]:
    """A worker and a stream of 100 pieces that has begun; its result is how many came."""
    begun, pieces = asyncio.Event(), 0

    async def read() -> int:
        nonlocal pieces
        request = EngineRequest(cache_salt="", id=client.next_id(), prompt=("!stream 100 10ms",))
        async for event in client.generate(request):
            # Of chunks that nobody has taken yet one is made; each piece is a word.
            pieces += len(event.text.split()) if isinstance(event, Chunk) else 0
            begun.set()
        return pieces

    limits = WorkerLimits(ping_s=0.02, silent_s=silent_s, stop_s=0.2)
    worker = WorkerProcess("tiny", FAKE_ENGINE, limits, on_change=lambda: None, clock=clock)
    await worker.start(LoadModel(path="tiny.gguf"))
    try:
        await until(lambda: worker.outcome is not None)
        assert isinstance(worker.outcome, ModelFacts)
        client = WorkerEngineClient("tiny", worker.outcome, worker)
        worker.listen(client)
        stream = asyncio.create_task(read())
        await asyncio.wait_for(begun.wait(), 60)
        yield worker, stream
    finally:
        await worker.stop()


@pytest.mark.anyio
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP")
async def test_a_stream_goes_on_after_a_night() -> None:
    clock = Sleep()
    async with streaming(clock, 20.0) as (worker, stream):
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGSTOP)
        clock.wake_after(12 * HOUR)
        os.kill(worker.pid, signal.SIGCONT)
        assert await asyncio.wait_for(stream, 60) == 100
        assert worker.end is None


@pytest.mark.anyio
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP")
async def test_a_worker_that_does_not_wake_up_is_ended() -> None:
    clock = Sleep()
    async with streaming(clock, 1.0) as (worker, stream):
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGSTOP)
        clock.wake_after(12 * HOUR)
        with pytest.raises(EngineStalled, match="silent"):
            await asyncio.wait_for(stream, 60)
        assert worker.end is not None


@pytest.mark.anyio
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP")
async def test_a_worker_that_freezes_in_its_load_is_ended_before_the_limit_of_a_load() -> None:
    limits = WorkerLimits(ping_s=0.02, silent_s=1.0, stop_s=0.2)
    worker = WorkerProcess("tiny", FAKE_ENGINE, limits, on_change=lambda: None)
    await worker.start(LoadModel(path="hang-on-load.gguf"))
    try:
        await until(lambda: worker.pong is not None)
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGSTOP)
        await until(lambda: worker.end is not None)
        assert worker.end is not None and worker.end.stall is not None
        assert worker.end.stall.phase == "silent"
    finally:
        await worker.stop()


@pytest.mark.anyio
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP")
async def test_a_part_of_a_state_is_not_awaited_from_a_worker_that_is_frozen() -> None:
    clock = Sleep()
    async with streaming(clock, 20.0) as (worker, stream):
        await stream
        watchdog = worker._watchdog  # pyright: ignore[reportPrivateUsage]
        while True:  # until nobody watches: each turn of the event loop has sent its ping, and it is answered
            await until(watchdog.resting)
            nonce = watchdog.pong and watchdog.pong.nonce
            await asyncio.sleep(0.1)
            if watchdog.resting() and nonce == (watchdog.pong and watchdog.pong.nonce):
                break
        assert worker.pid is not None and isinstance(worker.outcome, ModelFacts)
        os.kill(worker.pid, signal.SIGSTOP)
        client = WorkerEngineClient("tiny", worker.outcome, worker)
        worker.listen(client)
        asked = asyncio.create_task(client.ask(ReadState(state=1, offset=0, length=1)))
        async with asyncio.timeout(60):
            while not asked.done():
                clock.wake_after(0.5)  # seconds pass more quickly
                await asyncio.sleep(0.02)
        with pytest.raises(EngineFailure):
            await asked
        assert worker.end is not None
