"""A manager that is put to sleep and woken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from jan_serve.control.control_plane import MESSAGE, Sleeper
from jan_serve.core.models import ManagerSnapshot
from jan_serve.errors import Asleep, JanServeError
from jan_serve.supervisor.models.model_manager import ModelManager
from tests.support.engine.engines import fake_manager

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


async def test_a_sleep_whose_client_leaves_does_not_keep_the_model_from_its_next_load(tmp_path: Path) -> None:
    async with fake_manager(tmp_path) as manager:
        sleeper = Sleeper(manager, lambda: None)
        await manager.load(None)
        sleeping = asyncio.create_task(sleeper.sleep(1))
        while manager.snapshot().models[0].state != "stopping":
            await asyncio.sleep(0)
        sleeping.cancel()
        await asyncio.gather(sleeping, return_exceptions=True)
        async with asyncio.timeout(60):
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


class SlowManager:
    """Suspends, and loads, only as far as it is let. `steps`: what happened, in order."""

    def __init__(self, snapshot: Callable[[], ManagerSnapshot]) -> None:
        self.snapshot = snapshot
        self.steps: list[str] = []
        self.may_suspend = asyncio.Event()
        self.may_load = asyncio.Event()

    async def suspend(self, error: JanServeError, drain_s: float) -> None:
        self.steps.append("suspending")
        await self.may_suspend.wait()
        self.steps.append("suspended")

    def resume(self) -> None:
        self.steps.append("resumed")

    async def load(self, name: str | None, ttl_s: float | None = None) -> str:
        self.steps.append(f"loading {name}")
        await self.may_load.wait()
        return str(name)


async def turns() -> None:
    """Everything that can go on without the events has gone on."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_waking_waits_for_falling_asleep_and_the_next_sleep_for_waking(tmp_path: Path) -> None:
    async with fake_manager(tmp_path) as real:
        await real.load(None)
        manager = SlowManager(real.snapshot)
        sleeper = Sleeper(cast(Any, manager), lambda: manager.steps.append("forgotten"))
        calls = [asyncio.create_task(sleeper.sleep(1))]
        await turns()
        assert sleeper.is_sleeping, "from the first moment on"
        calls.append(asyncio.create_task(sleeper.wake(())))
        await turns()
        assert (manager.steps, sleeper.is_sleeping) == (["suspending"], True)
        calls.append(asyncio.create_task(sleeper.sleep(1)))
        manager.may_suspend.set()
        manager.may_load.set()
        await asyncio.gather(*calls)
        assert sleeper.is_sleeping
        order = [step for step in manager.steps if step != "loading fake"]
        assert order == ["suspending", "suspended", "resumed", "suspending", "suspended"]
        await sleeper.wake(())
        assert (manager.steps[-2:], sleeper.is_sleeping) == (["resumed", "loading fake"], False)


async def test_a_sleep_does_not_wait_for_models_that_are_loaded_again(tmp_path: Path) -> None:
    async with fake_manager(tmp_path) as real:
        await real.load(None)
        manager = SlowManager(real.snapshot)
        manager.may_suspend.set()
        sleeper = Sleeper(cast(Any, manager), lambda: None)
        await sleeper.sleep(1)
        waking = asyncio.create_task(sleeper.wake(()))
        await turns()
        assert manager.steps[-1] == "loading fake"
        async with asyncio.timeout(60):
            await sleeper.sleep(1)
        assert (manager.steps[-1], sleeper.is_sleeping) == ("suspended", True)
        manager.may_load.set()
        await waking
