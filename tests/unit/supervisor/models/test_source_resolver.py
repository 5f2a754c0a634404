"""Prepared loads, and files with newer weights."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import cast

import pytest

from jan_serve.core.models import ModelSource
from jan_serve.errors import Unavailable
from jan_serve.ipc.messages import EngineSettings
from jan_serve.store.model_memory import Footprint
from jan_serve.supervisor.models.source_resolver import (
    GOOD_FOR_S,
    LoadNeeds,
    LoadPreparation,
    SourceResolver,
    UpdatedWeights,
)

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


@pytest.fixture
def own(tmp_path: Path) -> ModelSource:
    """The model `a`, with its own file."""
    path = tmp_path / "a.gguf"
    path.write_bytes(b"old")
    return ModelSource(name="a", path=str(path), revision=(0,))


def test_an_update_is_another_file_and_revision_until_it_is_undone(own: ModelSource, tmp_path: Path) -> None:
    weights = UpdatedWeights()
    other = ModelSource(name="b", path=str(tmp_path / "b.gguf"))
    undo_first = weights.update(own, "/updated-1", 1)
    first = weights.current(own)
    assert (first.path, first.name) == ("/updated-1", "a")
    assert first.revision != own.revision
    assert weights.current(other) == other
    undo_second = weights.update(first, "/updated-2", 2)
    second = weights.current(own)
    assert second.path == "/updated-2"
    assert second.revision not in (own.revision, first.revision)
    undo_second()
    assert weights.current(own) == first
    undo_first()
    assert weights.current(own) == own
    undo_first()
    assert weights.current(own) == own, "there is no update to undo"


def test_a_file_that_is_replaced_is_newer_than_the_update(own: ModelSource) -> None:
    weights = UpdatedWeights()
    undo = weights.update(own, "/updated-1", 1)
    changed = ModelSource(name="a", path=own.path, revision=(1,))
    assert weights.current(changed).path == "/updated-1", "settings changed, the file did not"
    Path(own.path).write_bytes(b"newer")
    assert weights.current(own) == own
    Path(own.path).write_bytes(b"old")
    assert weights.current(own) == own
    weights.update(own, "/updated-2", 2)
    undo()
    assert weights.current(own).path == "/updated-2", "only its own update is undone"
