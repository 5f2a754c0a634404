"""The state that clients see, for every pair of a history and a resident."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jan_serve.core.engine_stats import EngineStats
from jan_serve.core.models import ModelSource
from jan_serve.supervisor.models.crash_backoff import RestartLimits
from jan_serve.supervisor.models.model_history import ModelHistory
from jan_serve.supervisor.models.resident_model import LoadState, model_status
from jan_serve.supervisor.models.source_resolver import Retention
from jan_serve.supervisor.workers.worker_process import WorkerEnd
from tests.support.fake_client import fake_facts

LIMITS = RestartLimits(backoff_s=(10.0,), window_s=60.0, max_crashes=2, cooldown_s=100.0)
CRASH = WorkerEnd(requested=False, status="signal SIGSEGV")


def history(crashes: int = 0) -> ModelHistory:
    made = ModelHistory(ModelSource(name="m", path="/m"), LIMITS)
    for _ in range(crashes):
        made.ended(CRASH, 1000.0)
    return made


def resident(state: LoadState, *, ending: bool = False) -> Any:
    """The members that a status reads."""

    def ttl_left_s(retention: Retention, now: float) -> float:
        return retention.ttl_s + now

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
        history(crashes), resident(present, ending=ending) if present is not None else None, 0, 1004.0
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
    loaded = model_status(known, resident(LoadState.READY), 3, 1000.0)
    assert (loaded.name, loaded.path, loaded.pid, loaded.leases, loaded.waiting) == ("m", "/m", 42, 2, 3)
    assert (loaded.load_fraction, loaded.taken_bytes, loaded.ttl_left_s) == (0.5, 160, 1030.0)
    assert (loaded.stats.cache_ram_bytes, loaded.facts) == (5, fake_facts())
    absent = model_status(known, None, 3, 1000.0)
    assert (absent.pid, absent.leases, absent.waiting, absent.load_fraction) == (None, 0, 3, 0.0)
    assert (absent.taken_bytes, absent.ttl_left_s, absent.facts) == (0, None, None)
    for status in (loaded, absent):
        assert (status.pinned, status.group, status.lost_devices) == (True, "g", ("CUDA0",))
