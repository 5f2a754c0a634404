"""A model in memory, and its status."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jan_serve.core.engine_stats import EngineStats
from jan_serve.core.models import ModelSource
from jan_serve.core.placement import DeviceShare
from jan_serve.ipc.messages import Pong
from jan_serve.store.model_memory import Footprint
from jan_serve.supervisor.crash_backoff import RestartLimits
from jan_serve.supervisor.models.eviction import MemoryUse, Retention
from jan_serve.supervisor.models.model_history import ModelHistory
from jan_serve.supervisor.models.resident_model import (
    LoadState,
    memory_when_loaded,
    model_status,
)
from jan_serve.supervisor.workers.worker_process import WorkerEnd
from tests.support.clock import TurnedClock
from tests.support.engine.fake_client import fake_facts
from tests.support.engine.residents import resident

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("facts", "mapped", "expected"),
    [
        ({"size_bytes": 100, "kv_bytes": 40}, True, MemoryUse(160, 0, 100)),
        ({"size_bytes": 100, "kv_bytes": 40}, False, MemoryUse(160, 0, 0)),
        ({"size_bytes": 90, "kv_bytes": 40}, True, MemoryUse(160, 0, 100)),
        ({"size_bytes": 120, "kv_bytes": 40}, True, MemoryUse(180, 0, 120)),
        ({"size_bytes": 100, "kv_bytes": 40, "n_gpu_layers": 4}, True, MemoryUse(160, 140, 0)),
        ({"size_bytes": 100, "kv_bytes": 40, "n_gpu_layers": 1}, True, MemoryUse(160, 35, 75)),
    ],
)
def test_memory_when_loaded(facts: dict[str, Any], mapped: bool, expected: MemoryUse) -> None:
    size = Footprint(weights=100, context=40, least_context=10, working=20, mapped=mapped)
    assert memory_when_loaded(size, fake_facts(n_layer=3, **facts)) == expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("gpu", MemoryUse(160, 120, 20)), ("rpc", MemoryUse(160, 120, 20)), ("igpu", MemoryUse(160, 0, 20))],
)
def test_parts_on_an_integrated_device_are_in_main_memory(kind: str, expected: MemoryUse) -> None:
    size = Footprint(weights=100, context=40, least_context=10, working=20, mapped=True)
    parts = (
        DeviceShare(device="CPU", kind="cpu", memory=999, weights=20, cache=0, compute=1),
        DeviceShare(device="X0", kind=kind, memory=500, weights=80, cache=40, compute=1, first=0, last=2),
    )
    facts = fake_facts(n_layer=3, n_gpu_layers=4, size_bytes=100, kv_bytes=40, placement=parts)
    assert memory_when_loaded(size, facts) == expected


async def test_the_prompt_cache_in_memory_counts() -> None:
    made, worker = resident()
    assert made.memory == MemoryUse(160, 30, 160)
    made.become_ready(fake_facts(size_bytes=100, kv_bytes=50))
    worker.last = Pong(nonce=1, phase="idle", phase_s=0.0, stats=EngineStats(cache_ram_bytes=7))
    assert made.memory == MemoryUse(177, 0, 100)


@pytest.mark.parametrize(
    ("own", "retention", "idle_s", "left"),
    [
        (None, Retention(ttl_s=60), 10, 50),
        (None, Retention(ttl_s=60), 70, 0),
        (None, Retention(ttl_s=-1), 10, None),
        (None, Retention(ttl_s=60, pinned=True), 10, None),
        (5.0, Retention(ttl_s=60, pinned=True), 2, 3),
        (0.0, Retention(ttl_s=-1), 0, 0),
        (-1.0, Retention(ttl_s=60), 100, None),
    ],
)
async def test_keep_alive(own: float | None, retention: Retention, idle_s: float, left: float | None) -> None:
    clock = TurnedClock()
    made, _ = resident(clock=clock)
    made.ttl_s, made.history.retention = own, retention
    assert made.ttl_left_s(clock()) is None, "it is still loading"
    made.become_ready(fake_facts())
    clock.turn(500)
    made.hold()
    clock.turn(500)
    made.release()
    clock.turn(idle_s)
    assert made.ttl_left_s(clock()) == left


async def test_a_resident_takes_requests_only_while_it_is_ready_and_stays() -> None:
    made, worker = resident()
    assert not made.usable
    made.become_ready(fake_facts())
    assert made.usable
    made.retiring = True
    assert not made.usable
    made.retiring, worker.ending = False, True
    assert not made.usable


async def test_as_the_eviction_policy_sees_it() -> None:
    made, _ = resident()
    made.history.retention = Retention(pinned=True, group="g")
    loading = made.occupant()
    assert (loading.leases, loading.pinned, loading.group, loading.leaving) == (1, True, "g", False)
    assert (loading.memory, loading.memory_on_device) == (160, 30)
    made.become_ready(fake_facts())
    made.hold()
    made.retiring = True
    assert (made.occupant().leases, made.occupant().leaving) == (1, False)
    made.release()
    assert (made.occupant().leases, made.occupant().leaving) == (0, True)
    made.retiring = False
    made.state = LoadState.GONE
    assert made.occupant().leaving


LIMITS = RestartLimits(backoff_s=(10.0,), window_s=60.0, max_crashes=2, cooldown_s=100.0)
CRASH = WorkerEnd(requested=False, status="signal SIGSEGV")


def history(crashes: int = 0) -> ModelHistory:
    made = ModelHistory(ModelSource(name="m", path="/m"), LIMITS)
    for _ in range(crashes):
        made.ended(CRASH, 1000.0)
    return made


def status_of(state: LoadState, *, ending: bool = False) -> Any:
    """The members that a status reads."""

    def ttl_left_s(now: float) -> float:
        return now + 30.0

    pong = SimpleNamespace(stats=EngineStats(cache_ram_bytes=5))
    return SimpleNamespace(
        state=state,
        worker=SimpleNamespace(ending=ending, pong=pong, pid=42, load_fraction=0.5),
        client=SimpleNamespace(facts=fake_facts()),
        leases=2,
        memory=SimpleNamespace(total=160),
        ttl_left_s=ttl_left_s,
    )


@pytest.mark.parametrize(
    ("crashes", "present", "ending", "state", "retry_after_s"),
    [
        (0, None, False, "unloaded", None),
        (1, None, False, "restarting", 6.0),
        (2, None, False, "failed", 96.0),
        (0, LoadState.GONE, False, "unloaded", None),
        (2, LoadState.GONE, False, "failed", 96.0),
        (0, LoadState.LOADING, False, "loading", None),
        (0, LoadState.READY, False, "ready", None),
        (0, LoadState.READY, True, "restarting", None),
        (0, LoadState.STOPPING, True, "stopping", None),
    ],
)
def test_states(
    crashes: int, present: LoadState | None, ending: bool, state: str, retry_after_s: float | None
) -> None:
    status = model_status(
        history(crashes), status_of(present, ending=ending) if present is not None else None, 0, 1004.0
    )
    assert (status.state, status.retry_after_s) == (state, retry_after_s)
    assert (status.crashes_total, status.reason) == (crashes, "signal SIGSEGV" if crashes else None)


def test_a_pause_that_is_over_leaves_the_model_unloaded() -> None:
    status = model_status(history(1), None, 0, 1010.0)
    assert (status.state, status.retry_after_s, status.reason) == ("unloaded", None, "signal SIGSEGV")


def test_figures_of_a_model_in_memory_and_of_one_that_is_not() -> None:
    known = history()
    known.retention = Retention(ttl_s=30.0, pinned=True, group="g")
    known.lost_devices = ("CUDA0",)
    loaded = model_status(known, status_of(LoadState.READY), 3, 1000.0)
    assert (loaded.name, loaded.path, loaded.pid, loaded.leases, loaded.waiting) == ("m", "/m", 42, 2, 3)
    assert (loaded.load_fraction, loaded.taken_bytes, loaded.ttl_left_s) == (0.5, 160, 1030.0)
    assert (loaded.stats.cache_ram_bytes, loaded.facts) == (5, fake_facts())
    absent = model_status(known, None, 3, 1000.0)
    assert (absent.pid, absent.leases, absent.waiting, absent.load_fraction) == (None, 0, 3, 0.0)
    assert (absent.taken_bytes, absent.ttl_left_s, absent.facts) == (0, None, None)
    for status in (loaded, absent):
        assert (status.pinned, status.group, status.lost_devices) == (True, "g", ("CUDA0",))
