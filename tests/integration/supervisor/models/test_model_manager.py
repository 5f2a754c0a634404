"""Leases, loads and swaps over real worker processes (the fake engine)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from jan_serve.core.caller import client
from jan_serve.core.models import ModelStatus
from jan_serve.core.trace import begin_trace
from jan_serve.errors import (
    Draining,
    EngineCrashed,
    InsufficientMemory,
    InvalidModel,
    ModelNotFound,
    Overloaded,
)
from jan_serve.ipc.messages import Chunk, EngineRequest, EngineSettings, TokenizeRequest
from jan_serve.supervisor.limits import ManagerLimits
from jan_serve.supervisor.models.held_model import HeldModel
from jan_serve.supervisor.models.loaded_models import LoadedModels
from jan_serve.supervisor.models.model_manager import ModelManager
from jan_serve.supervisor.models.resident_model import ResidentModel
from jan_serve.supervisor.models.source_resolver import LoadNeeds
from tests.support.engine.engines import FAKE_ENGINE, FakeResolver, Gate, fake_manager
from tests.support.processes import alive, children, until

pytestmark = pytest.mark.anyio


async def generate(client: HeldModel, prompt: str) -> str:
    """The text of one answer."""
    stream = client.generate(EngineRequest(cache_salt="", id=client.next_id(), prompt=(prompt,)))
    return "".join([event.text async for event in stream if isinstance(event, Chunk)])


async def ask(manager: ModelManager, name: str | None, prompt: str) -> str:
    """Lease, ask, release."""
    async with manager.lease(name) as client:
        return await generate(client, prompt)


def status(manager: ModelManager, name: str) -> ModelStatus:
    """What the snapshot says of one model."""
    return next(model for model in manager.snapshot().models if model.name == name)


class Holder:
    """A task that holds a lease until told to let go."""

    def __init__(
        self, manager: ModelManager, name: str, order: list[str] | None = None, tag: str = ""
    ) -> None:
        self.has_it = asyncio.Event()
        self._let_go = asyncio.Event()
        self._manager, self._name, self._order, self._tag = manager, name, order, tag
        self.task = asyncio.create_task(self._hold())

    async def _hold(self) -> None:
        async with self._manager.lease(self._name):
            if self._order is not None:
                self._order.append(self._tag)
            self.has_it.set()
            await self._let_go.wait()

    async def release(self) -> None:
        self._let_go.set()
        await self.task


async def waiting(manager: ModelManager, name: str, count: int) -> None:
    """Until so many requests wait for the model."""
    await until(lambda: any(m.name == name and m.waiting == count for m in manager.snapshot().models))


async def test_a_model_is_loaded_by_its_first_request_and_stays(tmp_path: Path) -> None:
    async with fake_manager(tmp_path) as manager:
        assert manager.snapshot().models == ()
        first = await ask(manager, None, "!pid")
        second = await ask(manager, "fake", "!pid")
        assert first == second == str(status(manager, "fake").pid)
        assert status(manager, "fake").loads_total == 1
        assert status(manager, "fake").leases == 0


async def test_only_a_request_that_waits_for_a_load_spends_time_on_it(tmp_path: Path) -> None:
    """However long the server takes to find a loaded model."""
    async with fake_manager(tmp_path) as manager:
        for phases in ({"load"}, set[str]()):
            trace = begin_trace()
            await ask(manager, None, "!pid")
            assert trace.phases.keys() == phases


async def test_a_preloaded_model_serves_the_first_request(tmp_path: Path) -> None:
    async with fake_manager(tmp_path) as manager:
        await manager.preload(None)
        [begun] = manager.snapshot().models
        assert (begun.name, begun.state in ("loading", "ready")) == ("fake", True)
        assert await ask(manager, None, "!pid") == str(status(manager, "fake").pid)
        assert status(manager, "fake").loads_total == 1


async def test_a_preload_that_fails_is_left_to_the_first_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with fake_manager(tmp_path, ("fail-load",)) as manager:
        await manager.preload("fail-load")
        await until(lambda: any("the model is not ready" in line for line in caplog.messages))
        with pytest.raises(InvalidModel):
            await ask(manager, "fail-load", "hello")


async def test_a_preload_does_not_outlive_the_manager(tmp_path: Path) -> None:
    async with fake_manager(tmp_path, ("hang-on-load",)) as manager:
        await manager.preload("hang-on-load")
        assert status(manager, "hang-on-load").state == "loading"
    assert children() == []


async def test_the_same_model_for_many_at_once_is_loaded_once(tmp_path: Path) -> None:
    async with fake_manager(tmp_path) as manager:
        answers = await asyncio.gather(*(ask(manager, "fake", "!pid") for _ in range(20)))
        assert len(set(answers)) == 1
        assert status(manager, "fake").loads_total == 1


async def test_an_unknown_model_is_refused_and_starts_nothing(tmp_path: Path) -> None:
    async with fake_manager(tmp_path) as manager:
        with pytest.raises(ModelNotFound):
            await ask(manager, "other", "hello")
        assert manager.snapshot().models == ()


async def test_a_model_that_cannot_be_loaded_refuses_everyone_that_waits(tmp_path: Path) -> None:
    names = ("fail-load", "no-memory", "fake")
    async with fake_manager(tmp_path, names) as manager:
        for name, kind in (("fail-load", InvalidModel), ("no-memory", InsufficientMemory)):
            tasks = [asyncio.create_task(ask(manager, name, "hello")) for _ in range(3)]
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert [type(result) for result in results] == [kind] * 3
            assert len({id(result) for result in results}) == 3, "each raises an error of its own"
            await until(lambda name=name: status(manager, name).state == "unloaded")
            assert status(manager, name).reason is not None
        assert await ask(manager, "fake", "!say fine") == "fine"


async def test_settings_reach_the_worker(tmp_path: Path) -> None:
    settings = EngineSettings(n_ctx=123, parallel=3)
    async with fake_manager(tmp_path, settings=settings) as manager, manager.lease(None) as client:
        assert (client.facts.n_ctx, client.facts.parallel) == (123, 3)


async def test_another_model_waits_for_the_leases_of_the_first_and_then_replaces_it(tmp_path: Path) -> None:
    async with fake_manager(tmp_path, ("a", "b")) as manager:
        holder = Holder(manager, "a")
        await holder.has_it.wait()
        pid = status(manager, "a").pid
        other = asyncio.create_task(ask(manager, "b", "!say b"))
        await waiting(manager, "b", 1)
        assert status(manager, "a").state == "ready"
        await holder.release()
        assert await other == "b"
        assert status(manager, "a").state == "unloaded"
        assert pid is not None and not alive(pid)
        assert len(children()) == 1


async def test_the_queue_is_fair_between_models(tmp_path: Path) -> None:
    async with fake_manager(tmp_path, ("a", "b")) as manager:
        order: list[str] = []
        first = Holder(manager, "a", order, "a1")
        await first.has_it.wait()
        holders = {"a1": first}
        for tag, count in (("b1", 1), ("a2", 1), ("b2", 2), ("a3", 2)):
            holders[tag] = Holder(manager, tag[0], order, tag)
            await waiting(manager, tag[0], count)
            # Until `b` is prepared, nobody knows that it needs the room of `a`.
            await until(lambda: "a" in manager._loaded.held_back)  # pyright: ignore[reportPrivateUsage]
        for tag in ("a1", "b1", "b2", "a2", "a3"):
            await holders[tag].has_it.wait()
            await holders[tag].release()
        assert order == ["a1", "b1", "b2", "a2", "a3"]
        assert status(manager, "a").loads_total == 2


async def test_a_waiter_that_leaves_lets_the_loaded_model_go_on(tmp_path: Path) -> None:
    async with fake_manager(tmp_path, ("a", "b")) as manager:
        first = Holder(manager, "a")
        await first.has_it.wait()
        leaver = asyncio.create_task(ask(manager, "b", "hello"))
        await waiting(manager, "b", 1)
        await until(lambda: "a" in manager._loaded.held_back)  # pyright: ignore[reportPrivateUsage]
        stuck = asyncio.create_task(ask(manager, "a", "!say on"))
        await waiting(manager, "a", 1)
        leaver.cancel()
        assert await stuck == "on"
        await first.release()
        assert status(manager, "b").loads_total == 0


async def test_two_models_at_once_where_the_limit_allows_it(tmp_path: Path) -> None:
    async with fake_manager(tmp_path, ("a", "b", "c"), limits=ManagerLimits(max_loaded=2)) as manager:
        a, b = Holder(manager, "a"), Holder(manager, "b")
        await asyncio.gather(a.has_it.wait(), b.has_it.wait())
        await a.release()
        assert await ask(manager, "c", "!say c") == "c"
        assert (status(manager, "a").state, status(manager, "b").state) == ("unloaded", "ready")
        await b.release()


async def test_when_everybody_leaves_the_load_stops_and_the_next_request_loads_again(
    tmp_path: Path,
) -> None:
    gate = Gate(tmp_path / "slow-load.gguf.gate")
    async with fake_manager(tmp_path, ("slow-load",)) as manager:
        tasks = [asyncio.create_task(ask(manager, None, "hello")) for _ in range(2)]
        await waiting(manager, "slow-load", 2)
        await until(lambda: status(manager, "slow-load").pid is not None)
        pid = status(manager, "slow-load").pid
        tasks[0].cancel()
        await asyncio.gather(tasks[0], return_exceptions=True)
        assert status(manager, "slow-load").state == "loading"
        tasks[1].cancel()
        await until(lambda: status(manager, "slow-load").state == "unloaded")
        assert pid is not None and not alive(pid)
        again = asyncio.create_task(ask(manager, None, "!say back"))
        await asyncio.to_thread(gate.open)
        assert await again == "back"
        assert status(manager, "slow-load").crashes_total == 0


async def test_a_waiter_that_leaves_does_not_stop_the_load_for_the_others(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "slow-load.gguf.gate")
    async with fake_manager(tmp_path, ("slow-load",)) as manager:
        leaver = asyncio.create_task(ask(manager, None, "hello"))
        stayer = asyncio.create_task(ask(manager, None, "!say here"))
        await waiting(manager, "slow-load", 2)
        leaver.cancel()
        await asyncio.to_thread(gate.open)
        assert await stayer == "here"
        assert status(manager, "slow-load").leases == 0


async def test_a_lease_that_is_granted_while_its_waiter_is_cancelled_is_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks: list[asyncio.Task[str]] = []
    grant: Callable[[LoadedModels, ResidentModel], None] = vars(LoadedModels)["_grant"]

    def grant_and_cancel(residents: LoadedModels, resident: ResidentModel) -> None:
        grant(residents, resident)
        assert resident.leases == max(len(tasks), 1)
        for task in tasks:
            task.cancel()

    monkeypatch.setattr(LoadedModels, "_grant", grant_and_cancel)
    async with fake_manager(tmp_path) as manager:
        tasks += [asyncio.create_task(ask(manager, None, "!say x")) for _ in range(5)]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError] * 5
        assert status(manager, "fake").leases == 0
        tasks.clear()
        assert await ask(manager, None, "!say y") == "y"


async def test_the_queue_limit_counts_what_waits_beyond_what_runs(tmp_path: Path) -> None:
    settings = EngineSettings(parallel=1)
    async with fake_manager(tmp_path, limits=ManagerLimits(max_queue=2), settings=settings) as manager:
        gates = [Gate(tmp_path / f"gate{number}") for number in range(3)]
        tasks = [asyncio.create_task(ask(manager, None, f"!gate {gate.path}")) for gate in gates]
        await until(lambda: sum(m.leases for m in manager.snapshot().models) == 3)
        refused = await asyncio.gather(
            *(ask(manager, None, "hello") for _ in range(7)), return_exceptions=True
        )
        assert [type(result) for result in refused] == [Overloaded] * 7
        assert isinstance(refused[0], Overloaded)
        assert refused[0].retry_after is not None and 1 <= refused[0].retry_after <= 60
        tasks[-1].cancel()
        await asyncio.gather(tasks[-1], return_exceptions=True)
        in_time = asyncio.create_task(ask(manager, None, "!say in"))
        for gate in gates[:2]:
            await asyncio.to_thread(gate.open)
        assert await asyncio.gather(*tasks[:2]) == ["0 done", "0 done"]
        assert await in_time == "in"


async def test_a_client_that_fills_the_queue_leaves_room_for_one_request_of_each_other(
    tmp_path: Path,
) -> None:
    settings = EngineSettings(parallel=1)
    async with fake_manager(tmp_path, limits=ManagerLimits(max_queue=2), settings=settings) as manager:
        client.set("greedy")
        gates = [Gate(tmp_path / f"gate{number}") for number in range(3)]
        tasks = [asyncio.create_task(ask(manager, None, f"!gate {gate.path}")) for gate in gates]
        await until(lambda: sum(m.leases for m in manager.snapshot().models) == 3)
        with pytest.raises(Overloaded):
            await ask(manager, None, "!say greedy")
        client.set("other")
        others = [asyncio.create_task(ask(manager, None, "!say in")) for _ in range(2)]
        for gate in gates:
            await asyncio.to_thread(gate.open)
        results = await asyncio.gather(*others, return_exceptions=True)
        assert [type(result) for result in results] == [str, Overloaded]
        await asyncio.gather(*tasks)


async def test_many_clients_cannot_grow_the_queue_beyond_twice_its_limit(tmp_path: Path) -> None:
    settings = EngineSettings(parallel=1)
    async with fake_manager(tmp_path, limits=ManagerLimits(max_queue=2), settings=settings) as manager:

        async def from_client(number: int, prompt: str) -> str:
            client.set(f"client {number}")
            return await ask(manager, None, prompt)

        gates = [Gate(tmp_path / f"gate{number}") for number in range(5)]
        in_time = [
            asyncio.create_task(from_client(number, f"!gate {gate.path}"))
            for number, gate in enumerate(gates)
        ]
        await until(lambda: sum(m.leases for m in manager.snapshot().models) == 5)
        late = [asyncio.create_task(from_client(5 + number, "!say late")) for number in range(7)]
        refused, _ = await asyncio.wait(late, timeout=60)
        for gate in gates:
            await asyncio.to_thread(gate.open)
        results = await asyncio.gather(*late, return_exceptions=True)
        assert len(refused) == 7, "requests beyond the limit wait"
        assert [type(result) for result in results] == [Overloaded] * 7
        assert await asyncio.gather(*in_time) == ["0 done"] * 5


async def test_other_calls_go_on_beside_a_stream(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    async with fake_manager(tmp_path) as manager:
        stream = asyncio.create_task(ask(manager, None, f"!gate {gate.path}"))
        async with manager.lease(None) as client:
            tokenized = await client.ask(TokenizeRequest(id=client.next_id(), text="ab", add_special=False))
            assert tokenized.tokens == [97, 98]
        await asyncio.to_thread(gate.open)
        assert await stream == "0 done"


async def test_draining_refuses_new_requests_and_lets_running_ones_finish(tmp_path: Path) -> None:
    gate = Gate(tmp_path / "gate")
    async with fake_manager(tmp_path) as manager:
        running = asyncio.create_task(ask(manager, None, f"!gate {gate.path}"))
        await until(lambda: any(m.leases for m in manager.snapshot().models))
        stopping = asyncio.create_task(manager.shutdown(30))
        await asyncio.sleep(0)
        assert manager.draining and manager.snapshot().draining
        with pytest.raises(Draining):
            await ask(manager, None, "hello")
        assert not stopping.done()
        await asyncio.to_thread(gate.open)
        assert await running == "0 done"
        await stopping
        assert children() == []


async def test_shutting_down_during_a_load(tmp_path: Path) -> None:
    Gate(tmp_path / "slow-load.gguf.gate")
    async with fake_manager(tmp_path, ("slow-load",)) as manager:
        loading = asyncio.create_task(ask(manager, None, "hello"))
        await waiting(manager, "slow-load", 1)
        await manager.shutdown(0)
        with pytest.raises(Draining):
            await loading
        assert children() == []


async def test_shutting_down_what_was_never_used(tmp_path: Path) -> None:
    async with fake_manager(tmp_path) as manager:
        await asyncio.wait_for(manager.shutdown(600), 60)


async def test_a_lease_held_over_a_crash_raises_and_does_no_harm(tmp_path: Path) -> None:
    async with fake_manager(tmp_path, limits=ManagerLimits(retry=0)) as manager:
        async with manager.lease(None) as client:
            with pytest.raises(EngineCrashed):
                await generate(client, "!die")
            with pytest.raises(EngineCrashed):
                await generate(client, "hello")
        assert status(manager, "fake").leases == 0


async def test_the_resolver_hears_of_each_load_once(tmp_path: Path) -> None:
    resolver = FakeResolver(tmp_path)
    manager = ModelManager(resolver, FAKE_ENGINE)
    try:
        for _ in range(2):
            for _ in range(2):
                assert await ask(manager, "fake", "!say fine") == "fine"
            await manager.unload("fake")
        await until(lambda: len(resolver.loads) == 2)
        assert resolver.loads == [("fake", "")] * 2
    finally:
        await manager.shutdown(0)


async def test_a_resolver_with_a_bug_does_not_leave_requests_waiting(tmp_path: Path) -> None:
    class Broken(FakeResolver):
        def needs(self, source: object) -> LoadNeeds:
            raise ZeroDivisionError

    manager = ModelManager(Broken(tmp_path), FAKE_ENGINE)
    try:
        with pytest.raises(Exception, match="could not be prepared"):
            await ask(manager, None, "hello")
    finally:
        await manager.shutdown(0)
