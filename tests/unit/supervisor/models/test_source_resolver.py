"""Loads that are prepared in threads."""

from __future__ import annotations

import asyncio
import errno
from typing import cast

import pytest

from jan_serve.core.models import ModelSource
from jan_serve.errors import Unavailable
from jan_serve.ipc.messages import EngineSettings
from jan_serve.store.model_memory import Footprint
from jan_serve.supervisor.models.source_resolver import GOOD_FOR_S, LoadNeeds, LoadPreparation, SourceResolver

pytestmark = pytest.mark.anyio

SOURCE = ModelSource(name="m", path="/m.gguf", revision=(1, 1))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class SlowResolver:
    """Each look takes `takes_s` of a clock that only it moves."""

    def __init__(self, takes_s: float) -> None:
        self.now = 0.0
        self.looks = 0
        self._takes_s = takes_s

    def needs(self, source: ModelSource) -> LoadNeeds:
        self.looks += 1
        self.now += self._takes_s
        return LoadNeeds(EngineSettings(), Footprint(0, 0, 0, 0))


async def prepared(preparation: LoadPreparation, changed: asyncio.Event) -> LoadNeeds:
    while True:
        changed.clear()
        found = preparation.result(SOURCE)
        if found is not None:
            assert isinstance(found, LoadNeeds)
            return found
        await changed.wait()


@pytest.mark.parametrize("takes_s", [0.0, 2 * GOOD_FOR_S])
async def test_one_look_is_enough_however_long_it_takes(takes_s: float) -> None:
    resolver, changed = SlowResolver(takes_s), asyncio.Event()
    preparation = LoadPreparation(cast(SourceResolver, resolver), None, changed.set, lambda: resolver.now)
    async with asyncio.timeout(10.0):
        await prepared(preparation, changed)
    assert resolver.looks == 1


async def test_what_is_old_is_looked_up_again() -> None:
    resolver, changed = SlowResolver(0.0), asyncio.Event()
    preparation = LoadPreparation(cast(SourceResolver, resolver), None, changed.set, lambda: resolver.now)
    async with asyncio.timeout(10.0):
        await prepared(preparation, changed)
        resolver.now += GOOD_FOR_S
        await prepared(preparation, changed)
    assert resolver.looks == 2


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"), MemoryError()])
async def test_what_was_lacking_for_a_moment_is_said_and_looked_up_again(error: Exception) -> None:
    looks, changed = [error], asyncio.Event()

    class Resolver(SlowResolver):
        def needs(self, source: ModelSource) -> LoadNeeds:
            if looks:
                raise looks.pop()
            return super().needs(source)

    preparation = LoadPreparation(cast(SourceResolver, Resolver(0.0)), None, changed.set, lambda: 0.0)
    assert preparation.result(SOURCE) is None
    async with asyncio.timeout(60):
        await changed.wait()
        assert isinstance(preparation.result(SOURCE), Unavailable)
        preparation.forget(SOURCE)  # as the manager does with each failure
        await prepared(preparation, changed)
