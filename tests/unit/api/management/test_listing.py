"""One entry for every model on disk and every download, with the state that clients of llama-server know."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from jan_serve.api.management.listing import model_list, status
from jan_serve.api.management.pulls import PullProgress
from jan_serve.core.engine_stats import EngineStats
from jan_serve.core.models.listed_model import HeaderFacts, ListedModel
from jan_serve.core.models.model_status import ModelState, ModelStatus
from jan_serve.core.models.placement import PlacedPart
from tests.support.fake_client import fake_facts

ON_DISK = ListedModel(
    name="org/m",
    aliases=("m",),
    adapters=("sql",),
    source="hub",
    source_name="org/m/m.gguf",
    size_bytes=70,
    modified_at=9,
    can_remove=True,
    facts=HeaderFacts(architecture="llama", n_ctx_train=4096),
    problem=None,
)


def state(value: ModelState, **changes: Any) -> ModelStatus:
    return ModelStatus(name="org/m", path="/m", state=value, **changes)


@pytest.mark.parametrize(
    ("model", "problem", "expected"),
    [
        (None, None, {"value": "unloaded"}),
        (None, "not a GGUF file", {"value": "failed", "failed": True, "reason": "not a GGUF file"}),
        (state("unloaded"), None, {"value": "unloaded"}),
        (state("ready"), None, {"value": "loaded"}),
        (state("ready", reason="an old crash"), "old", {"value": "loaded"}),
        (state("stopping", reason="an old crash"), None, {"value": "unloading"}),
        (state("loading", load_fraction=0.123456, reason="an old crash"), None,
         {"value": "loading",
          "progress": {"stages": ["text_model"], "current": "text_model", "value": 0.1235}}),
        (state("failed", reason="signal SIGSEGV", retry_after_s=9.87), None,
         {"value": "failed", "failed": True, "reason": "signal SIGSEGV", "retry_after_s": 9.9}),
        (state("restarting"), None, {"value": "unloaded"}),
        (state("restarting", reason="signal SIGSEGV", retry_after_s=0.0), "old",
         {"value": "failed", "failed": True, "reason": "signal SIGSEGV", "retry_after_s": 0.0}),
    ],
)  # fmt: skip
def test_status(model: ModelStatus | None, problem: str | None, expected: dict[str, Any]) -> None:
    assert status(model, problem) == expected


def test_a_model_that_was_never_requested() -> None:
    [entry] = model_list([ON_DISK], [])["data"]
    assert (entry["id"], entry["aliases"], entry["lora"], entry["created"]) == ("org/m", ["m"], ["sql"], 9)
    assert (entry["size_bytes"], entry["context_length"], entry["max_model_len"]) == (70, 4096, 4096)
    assert (entry["running"], entry["queued"], entry["pinned"]) == (0, 0, False)
    assert (entry["ttl_s"], entry["group"], entry["memory"]) == (None, None, None)
    assert (entry["parallel"], entry["device"]) == (None, None)


def test_a_model_in_memory() -> None:
    loaded = state(
        "ready",
        facts=fake_facts(size_bytes=50, kv_bytes=20, device="CUDA0"),
        stats=EngineStats(rss_bytes=60),
        taken_bytes=100,
        leases=2,
        waiting=1,
        keep_alive_left_s=12.34,
        pinned=True,
        group="g",
    )
    [entry] = model_list([ON_DISK], [loaded])["data"]
    assert (entry["running"], entry["queued"], entry["ttl_s"]) == (2, 1, 12.3)
    assert (entry["pinned"], entry["group"], entry["parallel"], entry["device"]) == (True, "g", 4, "CUDA0")
    assert (entry["context_length"], entry["max_model_len"]) == (512, 512)
    assert entry["memory"] == {"total": 100, "weights": 50, "kv_cache": 20, "resident": 60}


def test_resident_memory_that_was_not_measured_is_unknown() -> None:
    [entry] = model_list([ON_DISK], [state("ready", facts=fake_facts(), taken_bytes=100)])["data"]
    assert entry["memory"] == {"total": 100, "weights": 1, "kv_cache": 0, "resident": None}


def test_memory_of_a_model_that_loads_is_an_estimate() -> None:
    [entry] = model_list([ON_DISK], [state("loading", taken_bytes=100)])["data"]
    assert entry["memory"] == {"total": 100, "weights": None, "kv_cache": None, "resident": None}


def test_downloads_follow_the_models_unless_they_replace_one() -> None:
    new = PullProgress("org/new", "org/new/new.gguf", 3, 10)
    models = [replace(ON_DISK, name="b"), replace(ON_DISK, name="a")]
    data = model_list(models, [], [new, PullProgress("a", "x/a/a.gguf", 1, 2)])["data"]
    assert [entry["id"] for entry in data] == ["b", "a", "org/new"]
    assert data[2]["status"] == {
        "value": "downloading",
        "progress": {"org/new/new.gguf": {"done": 3, "total": 10}},
    }
    assert (data[2]["size_bytes"], data[2]["can_remove"], data[2]["context_length"]) == (10, False, None)


def test_where_the_parts_of_a_model_are() -> None:
    main = PlacedPart(
        device="CPU", kind="cpu", memory=9, weights=4, cache=0, compute=1, experts_first=0, experts_last=2
    )
    held = PlacedPart(
        device="CUDA0",
        kind="gpu",
        memory=9,
        weights=5,
        cache=2,
        compute=1,
        first=0,
        last=3,
        output=True,
        allocated=8,
    )
    loaded = state("ready", facts=fake_facts(placement=(main, held)))
    [entry] = model_list([ON_DISK], [loaded])["data"]
    assert entry["placement"] is not None
    first, second = entry["placement"]["parts"]
    assert (first["device"], first["blocks"], first["experts"], first["output"]) == (
        "CPU",
        None,
        [0, 2],
        False,
    )
    assert (second["blocks"], second["experts"], second["allocated"]) == ([0, 3], None, 8)
    assert second["text"].startswith("CUDA0: blocks 0 to 3 without experts")
    assert "read from main memory" in entry["placement"]["advice"][0]
    assert model_list([ON_DISK], [])["data"][0]["placement"] is None
    unmet = state("ready", facts=fake_facts(placement=(main,), placement_warning="No accelerator."))
    [entry] = model_list([ON_DISK], [unmet])["data"]
    assert entry["placement"] is not None and entry["placement"]["advice"] == ["No accelerator."]
