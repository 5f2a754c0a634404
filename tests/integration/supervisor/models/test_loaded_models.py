"""Several models in memory: what is evicted for what, what stays, what is refused, and when idle ones go."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest

from jan_serve.core.models import ModelStatus
from jan_serve.errors import Asleep, Draining, InsufficientMemory, ModelInUse, ModelNotFound, Unavailable
from jan_serve.ipc.messages import Chunk, EngineRequest, EngineSettings, TokenizeRequest
from jan_serve.store.model_memory import Footprint, FreeMemory
from jan_serve.supervisor.limits import ManagerLimits
from jan_serve.supervisor.models.eviction import Retention
from jan_serve.supervisor.models.held_model import HeldModel
from jan_serve.supervisor.models.model_manager import ModelManager
from tests.support.clock import TurnedClock
from tests.support.engine.engines import FAKE_ENGINE, FakeResolver, Gate
from tests.support.processes import alive, children, until

pytestmark = pytest.mark.anyio

GB = 1_000_000_000
MANY = ManagerLimits(max_loaded=0)


class Machine:
    """A manager over models of known sizes, on a machine whose memory the test sets."""

    def __init__(self, folder: Path, names: Sequence[str], free: int | None, limits: ManagerLimits) -> None:
        self.resolver = FakeResolver(folder, names)
        self.clock = TurnedClock()
        self.free = free
        self.looked = 0
        meter = None if free is None else self._meter
        self.manager = ModelManager(
            self.resolver, FAKE_ENGINE, limits, self.clock, meter=meter, timer=self.clock.wait
        )

    def _meter(self) -> FreeMemory:
        """Usable is 90 % of it."""
        self.looked += 1
        assert self.free is not None
        return FreeMemory(main=self.free * 10 // 9 + 1)

    def size(self, name: str, gigabytes: float) -> None:
        """The model's weights, mapped from its file; it needs nothing else."""
        self.resolver.sizes[name] = Footprint(int(gigabytes * GB), 0, 0, 0)

    async def use(self, name: str, ttl_s: float | None = None) -> int | None:
        """One request; the pid that served it. Time passes with each, so that the order of use is clear."""
        self.clock.turn(0.001)
        async with self.manager.lease(name, ttl_s):
            return self.status(name).pid

    def status(self, name: str) -> ModelStatus:
        """What the snapshot says of one model; nothing of one that nobody asked for."""
        known = {model.name: model for model in self.manager.snapshot().models}
        return known.get(name, ModelStatus(name=name, path="", state="unloaded"))

    def held_back(self) -> frozenset[str]:
        """Models that get no new request because another one waits for their room. No status shows it."""
        return self.manager._loaded.held_back  # pyright: ignore[reportPrivateUsage]

    def loaded(self) -> set[str]:
        """The models that are in memory."""
        return {model.name for model in self.manager.snapshot().models if model.state == "ready"}

    async def gone(self, name: str) -> None:
        """Until the model is out of memory."""
        await until(lambda: self.status(name).state == "unloaded")


@contextlib.asynccontextmanager
async def machine(
    folder: Path, names: Sequence[str], *, free: int | None = None, limits: ManagerLimits = MANY
) -> AsyncGenerator[Machine]:
    """Its workers are gone when the block ends."""
    made = Machine(folder, names, free, limits)
    for name in names:
        made.size(name, 1)
    try:
        yield made
    finally:
        await made.manager.shutdown(0)
        assert children() == []


async def test_two_models_are_in_memory_at_once_and_keep_their_workers(tmp_path: Path) -> None:
    async with machine(tmp_path, ("a", "b"), free=2 * GB) as m:
        pids = [await m.use("a"), await m.use("b")]
        assert [await m.use("a"), await m.use("b")] == pids
        assert m.loaded() == {"a", "b"}
        assert [m.status(name).taken_bytes for name in "ab"] == [GB, GB]


async def test_the_log_says_why_a_head_does_not_draft(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="jan_serve")
    async with machine(tmp_path, ("a", "b")) as m:
        await m.use("a")
        m.resolver.settings = EngineSettings(unused_heads="it has 3 of them")
        await m.use("b")
    said = [record.getMessage() for record in caplog.records if "MTP" in record.getMessage()]
    assert said == ["b: its head for further tokens (MTP) is not used: it has 3 of them"]


async def test_a_reload_is_no_eviction(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="jan_serve")
    async with machine(tmp_path, ("a",)) as m:
        await m.use("a")
        m.resolver.revisions["a"] = 2
        await m.use("a")
    said = [record.getMessage() for record in caplog.records if "unloading" in record.getMessage()]
    assert said[0] == "unloading a: reloaded with changed settings"


async def test_the_least_recently_used_model_is_evicted_for_one_that_does_not_fit_beside(
    tmp_path: Path,
) -> None:
    async with machine(tmp_path, ("a", "b", "c", "d"), free=3 * GB) as m:
        for name in ("a", "b", "c", "a"):
            await m.use(name)
        await m.use("d")
        assert m.loaded() == {"a", "c", "d"}
        m.size("b", 2)
        await m.use("b")
        assert m.loaded() == {"b", "d"}


async def test_a_large_model_waits_for_the_lease_of_another_and_small_ones_wait_behind_it(
    tmp_path: Path,
) -> None:
    async with machine(tmp_path, ("a", "large", "b"), free=2 * GB) as m:
        m.size("large", 2)
        async with m.manager.lease("a"):
            large = asyncio.create_task(m.use("large"))
            await until(lambda: "a" in m.held_back())
            assert (m.status("large").waiting, m.looked) == (1, 2)
            behind = asyncio.create_task(m.use("b"))
            again = asyncio.create_task(m.use("a"))
            await until(lambda: m.status("b").waiting == 1 and m.status("a").waiting == 1)
            assert m.loaded() == {"a"}
        await large
        assert (m.status("large").loads_total, m.status("a").loads_total) == (1, 1)
        await asyncio.gather(behind, again)
        assert m.status("a").loads_total == 2


async def test_what_cannot_fit_is_refused_with_both_figures_and_nothing_is_evicted(tmp_path: Path) -> None:
    async with machine(tmp_path, ("a", "huge"), free=3 * GB) as m:
        pid = await m.use("a")
        m.size("huge", 5)
        with pytest.raises(
            InsufficientMemory, match=r"5\.00 GB of memory .* 3\.00 GB can be had, even without `a`"
        ) as caught:
            await m.use("huge")
        assert caught.value.needed_bytes == 5 * GB
        assert caught.value.available_bytes == 3 * GB
        assert await m.use("a") == pid
        assert (m.status("huge").state, m.status("huge").loads_total) == ("unloaded", 0)
        assert "5.00 GB" in (m.status("huge").reason or "")
        m.size("huge", 2)
        await m.use("huge")
        assert m.status("huge").reason is None


async def test_prompts_that_a_model_keeps_in_ram_count_in_the_budget(tmp_path: Path) -> None:
    limits = ManagerLimits(max_loaded=0, memory_budget=3 * GB)
    async with machine(tmp_path, ("saved-900MB", "b", "c"), free=8 * GB, limits=limits) as m:
        await m.use("saved-900MB")
        await m.use("saved-900MB")  # what it keeps was told by then
        assert m.status("saved-900MB").taken_bytes == GB + 900_000_000
        await m.use("b")
        assert m.loaded() == {"saved-900MB", "b"}
        await m.use("c")
        assert m.loaded() == {"b", "c"}


async def test_prompts_are_kept_in_ram_only_as_far_as_the_budget_goes(tmp_path: Path) -> None:
    limits = ManagerLimits(max_loaded=0, memory_budget=GB + GB // 4)
    async with machine(tmp_path, ("saved-900MB",), free=8 * GB, limits=limits) as m:
        await m.use("saved-900MB")
        await m.use("saved-900MB")
        assert m.status("saved-900MB").taken_bytes == limits.memory_budget
    async with machine(tmp_path, ("saved-900MB",), free=8 * GB) as m:
        await m.use("saved-900MB")
        await m.use("saved-900MB")
        assert m.status("saved-900MB").taken_bytes == GB + 900_000_000


async def test_memory_that_other_programs_give_back_is_noticed_while_a_request_waits(tmp_path: Path) -> None:
    async with machine(tmp_path, ("a", "b"), free=GB) as m, m.manager.lease("a"):
        waiting = asyncio.create_task(m.use("b"))
        await until(lambda: "a" in m.held_back())
        m.free = 2 * GB
        m.clock.turn(6)
        await waiting
        assert m.loaded() == {"a", "b"}


async def test_a_budget_holds_whatever_is_free(tmp_path: Path) -> None:
    limits = ManagerLimits(max_loaded=0, memory_budget=2 * GB)
    async with machine(tmp_path, ("a", "b", "c"), free=100 * GB, limits=limits) as m:
        for name in ("a", "b", "c"):
            await m.use(name)
        assert m.loaded() == {"b", "c"}
        m.size("a", 3)
        with pytest.raises(InsufficientMemory, match=r"2\.00 GB can be had.*memory_budget above 2\.00 GB"):
            await m.use("a")


async def test_pinned_models_stay_and_say_so(tmp_path: Path) -> None:
    async with machine(tmp_path, ("a", "b", "c"), free=2 * GB) as m:
        m.resolver.retentions["a"] = Retention(pinned=True)
        for name in ("a", "b", "c"):
            await m.use(name)
        assert m.loaded() == {"a", "c"}
        m.size("b", 2)
        with pytest.raises(
            InsufficientMemory, match=r"1\.00 GB can be had beside `a`, which stays in memory"
        ):
            await m.use("b")
        m.clock.turn(1e9)
        await m.gone("c")
        assert m.loaded() == {"a"}
        assert m.status("a").ttl_left_s is None


async def test_models_of_a_group_are_not_in_memory_together(tmp_path: Path) -> None:
    async with machine(tmp_path, ("a", "b", "c")) as m:
        m.resolver.retentions |= {"a": Retention(group="large"), "b": Retention(group="large")}
        for name in ("a", "c", "b"):
            await m.use(name)
        assert m.loaded() == {"b", "c"}
        m.resolver.retentions["b"] = Retention(group="large", pinned=True)
        await m.use("b")
        with pytest.raises(Unavailable, match="beside `b`"):
            await m.use("a")


async def test_idle_models_go_when_their_time_is_over_and_use_begins_it_anew(tmp_path: Path) -> None:
    async with machine(tmp_path, ("a", "b")) as m:
        m.resolver.retentions |= {"a": Retention(ttl_s=600), "b": Retention(ttl_s=-1)}
        await m.use("a")
        await m.use("b")
        pid = m.status("a").pid
        m.clock.turn(599)
        assert 0 < (m.status("a").ttl_left_s or 0) < 2
        await m.use("a")
        m.clock.turn(599)
        async with m.manager.lease("a"):
            m.clock.turn(3600)
            await m.use("b")
            assert "a" in m.loaded()
        assert m.status("a").ttl_left_s == 600
        m.clock.turn(600)
        await m.gone("a")
        assert pid is not None and not alive(pid)
        assert m.loaded() == {"b"}
        assert m.status("b").ttl_left_s is None


async def test_a_request_says_how_long_its_model_stays_and_the_last_one_counts(tmp_path: Path) -> None:
    async with machine(tmp_path, ("a",)) as m:
        await m.use("a", 5)
        assert m.status("a").ttl_left_s == 5
        await m.use("a")
        assert m.status("a").ttl_left_s == 5
        await m.use("a", -1)
        assert m.status("a").ttl_left_s is None
        await m.use("a", 0)
        await m.gone("a")
        await m.use("a")
        assert m.status("a").ttl_left_s == 600


async def test_unload_waits_for_what_runs_and_new_requests_load_again(tmp_path: Path) -> None:
    async with machine(tmp_path, ("a",)) as m:
        async with m.manager.lease("a"):
            pid = m.status("a").pid
            unloading = asyncio.create_task(m.manager.unload("a"))
            later = asyncio.create_task(m.use("a"))
            await until(lambda: m.status("a").waiting == 1)
            assert not unloading.done()
        assert await unloading
        assert await later != pid
        assert m.status("a").loads_total == 2


async def _answer(m: Machine, prompt: str, after: int, seen: asyncio.Event) -> str:
    """The text of an answer; the event is set when `after` of its words are there."""
    text = ""
    async with m.manager.lease("a") as client:
        async for event in client.generate(
            EngineRequest(cache_salt="", id=client.next_id(), prompt=(prompt,))
        ):
            text += event.text if isinstance(event, Chunk) else ""
            if text.count(" ") >= after:
                seen.set()
    return text


async def test_unload_by_force_ends_what_runs_with_an_error(tmp_path: Path) -> None:
    async with machine(tmp_path, ("a",)) as m:
        seen = asyncio.Event()
        endless = asyncio.create_task(_answer(m, "!stream 1000000 1ms", 1, seen))
        await seen.wait()
        assert await m.manager.unload("a", force=True)
        with pytest.raises(Unavailable, match="unloaded by request"):
            await endless


async def test_unloading_at_any_moment_of_a_stream_ends_it_whole_or_with_an_error(
    tmp_path: Path,
) -> None:
    whole = "".join(f"{number} " for number in range(40))
    async with machine(tmp_path, ("a",)) as m:
        for moment in range(10):
            force = moment % 2 == 1
            seen = asyncio.Event()
            streaming = asyncio.create_task(_answer(m, "!stream 40 1ms", 4 * moment, seen))
            await seen.wait()
            assert await m.manager.unload("a", force=force)
            result = (await asyncio.gather(streaming, return_exceptions=True))[0]
            assert result == whole or (force and isinstance(result, Unavailable)), result
        assert m.status("a").crashes_total == 0
        assert await m.use("a") is not None


async def test_unload_takes_a_waiting_request_out_of_the_queue(tmp_path: Path) -> None:
    async with machine(tmp_path, ("a", "b"), limits=ManagerLimits(max_loaded=1)) as m:
        async with m.manager.lease("a"):
            waiting = asyncio.create_task(m.use("b"))
            await until(lambda: m.status("b").waiting == 1)
            assert await m.manager.unload("b")
            with pytest.raises(Unavailable):
                await waiting
        assert not await m.manager.unload("b")
        with pytest.raises(ModelNotFound):
            await m.manager.unload("nothing")


async def test_a_load_that_is_broken_off_leaves_no_process(tmp_path: Path) -> None:
    async with machine(tmp_path, ("slow-load",)) as m:
        gate = Gate(tmp_path / "slow-load.gguf.gate")
        loading = asyncio.create_task(m.use("slow-load"))
        await until(lambda: any(model.pid is not None for model in m.manager.snapshot().models))
        assert await m.manager.unload("slow-load")
        with pytest.raises(Unavailable):
            await loading
        assert children() == []
        again = asyncio.create_task(m.use("slow-load"))
        await asyncio.to_thread(gate.open)
        await again
        assert m.status("slow-load").crashes_total == 0


async def test_a_model_that_is_removed_is_out_of_memory_and_not_loaded_meanwhile(tmp_path: Path) -> None:
    async with machine(tmp_path, ("a", "b")) as m:
        async with m.manager.lease("a"):
            with pytest.raises(ModelInUse):
                async with m.manager.removing("a"):
                    raise AssertionError
        async with m.manager.removing("a") as source:
            assert (source.name, m.loaded()) == ("a", set())
            with pytest.raises(ModelInUse, match="is being deleted"):
                async with m.manager.removing("a"):
                    raise AssertionError
            late = asyncio.create_task(m.use("a"))
            await until(lambda: m.status("a").waiting == 1)
            await m.use("b")
            assert m.loaded() == {"b"}
        await late
        assert m.loaded() == {"a", "b"}


async def test_what_runs_when_it_falls_asleep_has_its_time_and_then_an_error(tmp_path: Path) -> None:
    async with machine(tmp_path, ("a",)) as m:
        async with m.manager.lease("a") as client:
            sleeping = asyncio.create_task(m.manager.suspend(Asleep("Sleeping."), 600))
            await asyncio.sleep(0)
            assert len(await _tokens(client)) > 0
            assert not sleeping.done()
        await asyncio.wait_for(sleeping, 60)
        m.manager.resume()
        async with m.manager.lease("a") as client:
            await m.manager.suspend(Asleep("Sleeping."), 0)
            with pytest.raises(Asleep):
                await _tokens(client)


async def test_a_server_that_drains_is_not_woken(tmp_path: Path) -> None:
    async with machine(tmp_path, ("a",)) as m:
        await m.manager.shutdown(0)
        m.manager.resume()
        with pytest.raises(Draining):
            await m.use("a")


async def test_a_load_that_stops_memory_from_being_free_is_counted_while_it_goes_on(tmp_path: Path) -> None:
    async with machine(tmp_path, ("slow-load", "b"), free=GB) as m:
        gate = Gate(tmp_path / "slow-load.gguf.gate")
        first = asyncio.create_task(m.use("slow-load"))
        await until(lambda: any(model.pid is not None for model in m.manager.snapshot().models))
        second = asyncio.create_task(m.use("b"))
        await until(lambda: m.status("b").waiting == 1 and m.looked >= 2)
        assert m.status("b").pid is None
        await asyncio.to_thread(gate.open)
        await asyncio.gather(first, second)
        assert m.loaded() == {"b"}


async def _tokens(client: HeldModel) -> list[int]:
    return (await client.ask(TokenizeRequest(id=client.next_id(), text="abc"))).tokens


async def test_a_context_that_the_worker_chooses_takes_no_more_than_what_is_free(tmp_path: Path) -> None:
    limits = ManagerLimits(max_loaded=0, memory_budget=3 * GB)
    async with machine(tmp_path, ("a", "b"), free=100 * GB, limits=limits) as m:
        m.resolver.sizes["b"] = Footprint(GB, GB, GB // 2, GB // 4)
        async with m.manager.lease("a"), m.manager.lease("b") as client:
            assert client.facts.metadata["context_bytes"] == str(3 * GB - GB - GB - GB // 4)
