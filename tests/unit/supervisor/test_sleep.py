"""A manager that is put to sleep and woken."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jan_serve.errors import Asleep
from jan_serve.supervisor.model_manager import ModelManager
from jan_serve.supervisor.sleep import MESSAGE, Sleeper
from tests.support.engines import fake_manager

pytestmark = pytest.mark.anyio


def loaded(manager: ModelManager) -> list[str]:
    return [model.name for model in manager.snapshot().models if model.state == "ready"]


async def test_what_was_loaded_is_loaded_again_once_both_tags_are_awake(tmp_path: Path) -> None:
    async with fake_manager(tmp_path, ("a", "b", "c")) as manager:
        sleeper = Sleeper(manager, lambda: None)
        await manager.load("a")
        await manager.load("b")
        before = loaded(manager)
        await sleeper.sleep(1)
        assert (sleeper.is_sleeping, loaded(manager)) == (True, [])
        for tags in (["weights"], ["weights"], ["nonsense"]):
            await sleeper.wake(tags)
            assert sleeper.is_sleeping
            with pytest.raises(Asleep, match="POST /wakeup") as refused:
                await manager.load("a")
            assert (refused.value.message, refused.value.retry_after) == (MESSAGE, None)
        await sleeper.wake(["kv_cache"])
        assert (sleeper.is_sleeping, loaded(manager)) == (False, before)


@pytest.mark.parametrize("level", [1, 2])
async def test_level_2_forgets_what_is_kept_on_disk(tmp_path: Path, level: int) -> None:
    forgotten: list[bool] = []
    async with fake_manager(tmp_path) as manager:
        sleeper = Sleeper(manager, lambda: forgotten.append(bool(loaded(manager))))
        await manager.load(None)
        await sleeper.sleep(level)
        assert forgotten == ([False] if level == 2 else []), "only when no worker is left that could write"
        await sleeper.wake(())
        assert not sleeper.is_sleeping


async def test_who_waits_and_who_runs_is_told(tmp_path: Path) -> None:
    async with fake_manager(tmp_path) as manager:
        sleeper = Sleeper(manager, lambda: None)
        entered = asyncio.Event()

        async def hold() -> None:
            async with manager.lease(None) as client:
                entered.set()
                await asyncio.Event().wait()
                assert client

        holder = asyncio.create_task(hold())
        await entered.wait()
        await sleeper.sleep(1)
        assert loaded(manager) == []
        holder.cancel()
        await asyncio.gather(holder, return_exceptions=True)
        await sleeper.wake(())
        assert loaded(manager) == ["fake"]


async def test_a_second_sleep_keeps_what_the_first_remembered(tmp_path: Path) -> None:
    async with fake_manager(tmp_path) as manager:
        sleeper = Sleeper(manager, lambda: None)
        await manager.load(None)
        await sleeper.sleep(1)
        await sleeper.sleep(2)
        await asyncio.gather(sleeper.wake(()), sleeper.wake(["weights"]))
        assert loaded(manager) == ["fake"]
