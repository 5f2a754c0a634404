"""The supervisor over the real engine: the fake one's behaviour holds for llama.cpp's process too."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import pytest

from jan_serve.core.constraint import CompiledGrammar, Guide
from jan_serve.core.request import SamplingParams, StopConditions
from jan_serve.errors import GrammarTooComplex
from jan_serve.ipc.messages import Chunk, EngineRequest, EngineSettings
from jan_serve.supervisor.models.held_model import HeldModel
from jan_serve.supervisor.models.model_manager import ModelManager
from jan_serve.supervisor.workers.child_process import own_command
from tests.support.engine.engines import FakeResolver
from tests.support.gguf.models import model_folder, tiny_llama
from tests.support.processes import children, until

__all__ = ["model_folder", "tiny_llama"]

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

SETTINGS = EngineSettings(n_ctx=32_768, parallel=2, threads=1)


@contextlib.asynccontextmanager
async def real_manager(model: Path) -> AsyncGenerator[ModelManager]:
    """A manager whose one model is this file."""
    resolver = FakeResolver(model.parent, (model.stem,), SETTINGS)
    manager = ModelManager(resolver, own_command("worker"))
    try:
        yield manager
    finally:
        await manager.shutdown(0)


def request(client: HeldModel, max_tokens: int) -> EngineRequest:
    """A greedy continuation."""
    return EngineRequest(
        id=client.next_id(),
        cache_salt="",
        prompt=("hello",),
        sampling=SamplingParams(temperature=0.0),
        stopping=StopConditions(max_tokens=max_tokens, ignore_eos=True),
    )


async def text(client: HeldModel, max_tokens: int = 8) -> str:
    stream = client.generate(request(client, max_tokens))
    return "".join([event.text async for event in stream if isinstance(event, Chunk)])


def rules(length: int) -> CompiledGrammar:
    """A chain of rules, each of which refers to the next."""
    chain = [f'r_{i}: "a" r_{i + 1}' for i in range(length)]
    lark = "\n".join(["start: r_0", *chain, f'r_{length}: "b"']) + "\n"
    return CompiledGrammar(lark)


async def test_rules_that_refer_to_one_another_without_end_do_not_end_a_worker(
    tiny_llama: Path,
) -> None:
    async with real_manager(tiny_llama) as manager, manager.lease(None) as client:
        before = await text(client)
        [worker] = children()
        for length in (20_000, 3_000, 1_900):
            held = msgspec.structs.replace(request(client, 4), guide=Guide(grammar=rules(length)))
            stream = client.generate(held)
            if length < 2_000:
                assert "".join([event.text async for event in stream if isinstance(event, Chunk)]) == "aaaa"
            else:
                with pytest.raises(GrammarTooComplex):
                    async for _ in stream:
                        pass
        assert await text(client) == before
        assert children() == [worker]


async def test_a_worker_is_stopped_long_before_the_limit(tiny_llama: Path) -> None:
    async with real_manager(tiny_llama) as manager:
        async with manager.lease(None) as client:
            await text(client)
        async with asyncio.timeout(60):
            await manager.shutdown(600)
        assert children() == []


async def test_the_pulse_brings_the_engines_counters(tiny_llama: Path) -> None:
    async with real_manager(tiny_llama) as manager:
        async with manager.lease(None) as client:
            await text(client, 20)
        await until(lambda: manager.snapshot().models[0].stats.generated_tokens_total == 20)
        stats = manager.snapshot().models[0].stats
        assert stats.rss_bytes > 10_000_000
        assert stats.running == 0
