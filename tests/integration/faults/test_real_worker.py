"""The supervisor over the real engine: the fake one's behaviour holds for llama.cpp's process too."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import pytest

from jan_serve.core.constraint import CompiledGrammar
from jan_serve.core.sampling import SamplingParams, StopConditions
from jan_serve.errors import EngineCrashed, GrammarTooComplex, InvalidModel
from jan_serve.ipc.messages import Chunk, EngineRequest, EngineSettings
from jan_serve.supervisor.limits import ManagerLimits, RestartLimits
from jan_serve.supervisor.models.model_manager import ModelManager
from jan_serve.supervisor.workers.child_process import own_command
from jan_serve.supervisor.workers.engine_client import WorkerEngineClient
from tests.support.engines import FakeResolver
from tests.support.models import model_folder, tiny_llama
from tests.support.processes import alive, children, until, wait_until

__all__ = ["model_folder", "tiny_llama"]

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

SETTINGS = EngineSettings(n_ctx=32_768, parallel=2, threads=1)
# Enough tokens that a signal comes before the end of the answer, however late the test reads its beginning.
ENDLESS = 30_000
NO_PAUSE = ManagerLimits(restart=RestartLimits(backoff_s=(0.0,), max_crashes=10**6))


@contextlib.asynccontextmanager
async def real_manager(model: Path) -> AsyncGenerator[ModelManager]:
    """A manager whose one model is this file."""
    resolver = FakeResolver(model.parent, (model.stem,), SETTINGS)
    manager = ModelManager(resolver, own_command("worker"), NO_PAUSE)
    try:
        yield manager
    finally:
        await manager.shutdown(0)


def request(client: WorkerEngineClient, max_tokens: int) -> EngineRequest:
    """A greedy continuation."""
    return EngineRequest(
        id=client.next_id(),
        prompt=("hello",),
        sampling=SamplingParams(temperature=0.0),
        stopping=StopConditions(max_tokens=max_tokens, ignore_eos=True),
    )


async def text(client: WorkerEngineClient, max_tokens: int = 8) -> str:
    stream = client.generate(request(client, max_tokens))
    return "".join([event.text async for event in stream if isinstance(event, Chunk)])


@pytest.mark.parametrize("name", ["SEGV", "ABRT", "KILL"])
async def test_the_same_answer_before_and_after_a_crash_in_decode(tiny_llama: Path, name: str) -> None:
    async with real_manager(tiny_llama) as manager:
        async with manager.lease(None) as client:
            golden = await text(client)
            pid = manager.snapshot().models[0].pid
            assert pid is not None
            with pytest.raises(EngineCrashed, match=f"SIG{name}"):
                async for event in client.generate(request(client, ENDLESS)):
                    if isinstance(event, Chunk) and alive(pid):
                        os.kill(pid, signal.Signals[f"SIG{name}"])
        async with manager.lease(None) as client:
            assert await text(client) == golden


def rules(length: int) -> CompiledGrammar:
    """A chain of rules, each of which refers to the next."""
    chain = [f'r_{i}: "a" r_{i + 1}' for i in range(length)]
    lark = "\n".join(["start: r_0", *chain, f'r_{length}: "b"']) + "\n"
    return CompiledGrammar(gbnf='root ::= "a"', lark=lark)


async def test_rules_that_refer_to_one_another_without_end_do_not_end_a_worker(
    tiny_llama: Path,
) -> None:
    async with real_manager(tiny_llama) as manager, manager.lease(None) as client:
        before = await text(client)
        [worker] = children()
        for length in (20_000, 3_000, 1_900):
            held = msgspec.structs.replace(request(client, 4), grammar=rules(length))
            stream = client.generate(held)
            if length < 2_000:
                assert "".join([event.text async for event in stream if isinstance(event, Chunk)]) == "aaaa"
            else:
                with pytest.raises(GrammarTooComplex):
                    async for _ in stream:
                        pass
        assert await text(client) == before
        assert children() == [worker]


async def test_a_worker_is_stopped_within_a_second(tiny_llama: Path) -> None:
    async with real_manager(tiny_llama) as manager:
        async with manager.lease(None) as client:
            await text(client)
        start = time.monotonic()
        await manager.shutdown(30)
        assert time.monotonic() - start < 1.0
        assert children() == []


async def test_a_file_that_is_no_model_is_refused_and_removed(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"GGUF" + bytes(1000))
    async with real_manager(damaged) as manager:
        with pytest.raises(InvalidModel):
            async with manager.lease(None):
                pass
        await until(lambda: children() == [])
        assert manager.snapshot().models[0].crashes_total == 0


async def test_the_pulse_brings_the_engines_counters(tiny_llama: Path) -> None:
    async with real_manager(tiny_llama) as manager:
        async with manager.lease(None) as client:
            await text(client, 20)
        await until(lambda: manager.snapshot().models[0].stats.generated_tokens_total == 20)
        stats = manager.snapshot().models[0].stats
        assert stats.rss_bytes > 10_000_000
        assert stats.running == 0


PARENT = """
import asyncio, sys
from pathlib import Path
from tests.integration.faults.test_real_worker import real_manager, request

async def main():
    async with real_manager(Path(sys.argv[1])) as manager, manager.lease(None) as client:
        print(manager.snapshot().models[0].pid, flush=True)
        while True:
            async for event in client.generate(request(client, 400)):
                pass

asyncio.run(main())
"""


async def test_the_worker_ends_within_two_seconds_of_its_killed_parent(tiny_llama: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tiny_llama)], stdout=subprocess.PIPE, env=environment, text=True
    ) as parent:
        assert parent.stdout is not None
        worker = int(await asyncio.to_thread(parent.stdout.readline))
        assert alive(worker)
        parent.kill()
        parent.wait(10)
        assert wait_until(lambda: not alive(worker), 2.0) < 2.0
