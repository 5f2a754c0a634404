"""One entry for every model on disk and every download, with the state that clients of llama-server know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from jan_serve.api.management import listing
from jan_serve.api.management.listing import all_events, load_events, model_list, status
from jan_serve.api.management.pulls import PullProgress
from jan_serve.core.engine_stats import EngineStats
from jan_serve.core.models import HeaderFacts, ListedModel, ManagerSnapshot, ModelState, ModelStatus
from jan_serve.core.placement import DeviceShare
from jan_serve.errors import InvalidModel
from tests.support.engine.fake_client import fake_facts
from tests.support.processes import until

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
        facts=fake_facts(size_bytes=50, kv_bytes=20, bytes_per_token=45, device="CUDA0"),
        stats=EngineStats(rss_bytes=60),
        taken_bytes=100,
        leases=2,
        waiting=1,
        ttl_left_s=12.34,
        pinned=True,
        group="g",
    )
    [entry] = model_list([ON_DISK], [loaded])["data"]
    assert (entry["running"], entry["queued"], entry["ttl_s"]) == (2, 1, 12.3)
    assert (entry["pinned"], entry["group"], entry["parallel"], entry["device"]) == (True, "g", 4, "CUDA0")
    assert (entry["context_length"], entry["max_model_len"]) == (512, 512)
    assert entry["memory"] == {
        "total": 100,
        "weights": 50,
        "read_per_token": 45,
        "kv_cache": 20,
        "resident": 60,
    }


def test_resident_memory_that_was_not_measured_is_unknown() -> None:
    [entry] = model_list([ON_DISK], [state("ready", facts=fake_facts(), taken_bytes=100)])["data"]
    assert entry["memory"] == {
        "total": 100,
        "weights": 1,
        "read_per_token": None,
        "kv_cache": 0,
        "resident": None,
    }


def test_memory_of_a_model_that_loads_is_an_estimate() -> None:
    [entry] = model_list([ON_DISK], [state("loading", taken_bytes=100)])["data"]
    assert entry["memory"] == {
        "total": 100,
        "weights": None,
        "read_per_token": None,
        "kv_cache": None,
        "resident": None,
    }


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
    main = DeviceShare(
        device="CPU", kind="cpu", memory=9, weights=4, cache=0, compute=1, experts_first=0, experts_last=2
    )
    held = DeviceShare(
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


pytestmark = pytest.mark.anyio


class World:
    """The models in memory, on disk and under way; manager, library and pulls in one."""

    def __init__(self) -> None:
        self.states: dict[str, ModelStatus] = {}
        self.on_disk: list[str] = []
        self.under_way: dict[str, int] = {}
        self.polls = 0
        self.draining = False
        self.loaded: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def set(self, name: str, state: ModelState, **changes: Any) -> None:
        self.states[name] = ModelStatus(name=name, path=f"/{name}", state=state, **changes)

    def snapshot(self) -> ManagerSnapshot:
        self.polls += 1
        return ManagerSnapshot(draining=self.draining, models=tuple(self.states.values()))

    async def load(self, name: str, ttl_s: float | None) -> str:
        return await self.loaded

    async def models(self) -> list[Any]:
        return [SimpleNamespace(name=name) for name in self.on_disk]

    def downloads(self) -> tuple[PullProgress, ...]:
        return tuple(PullProgress(name, f"{name}.gguf", done, 9) for name, done in self.under_way.items())


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> World:
    for name in ("_LOAD_POLL_S", "_POLL_S", "_FOLDER_POLL_S"):
        monkeypatch.setattr(listing, name, 0.001)
    return World()


def loading(world: Any, name: str) -> AsyncGenerator[dict[str, Any]]:
    services: Any = SimpleNamespace(manager=world, library=world)
    return load_events(services, name, None)


def everything(world: Any) -> AsyncGenerator[dict[str, Any]]:
    services: Any = SimpleNamespace(manager=world, library=world)
    return all_events(services, world)


def status_event(name: str, value: str, **data: Any) -> dict[str, Any]:
    return {"model": name, "event": "model_status", "data": {"status": value, **data}}


def progress(value: float) -> dict[str, Any]:
    return {"stages": ["text_model"], "current": "text_model", "value": value}


async def test_a_load_reports_each_step_once_and_its_end(world: World) -> None:
    world.set("m", "loading", load_fraction=0.25)
    async with aclosing(loading(world, "m")) as events:
        assert await anext(events) == status_event("m", "loading", progress=progress(0.25))
        next_event = asyncio.ensure_future(anext(events))
        polls = world.polls
        await until(lambda: world.polls >= polls + 3)
        assert not next_event.done()
        world.set("m", "loading", load_fraction=0.5)
        assert await next_event == status_event("m", "loading", progress=progress(0.5))
        world.set("m", "ready")
        world.loaded.set_result("org/m")
        assert [event async for event in events] == [status_event("org/m", "loaded")]


async def test_a_load_that_fails_raises(world: World) -> None:
    world.loaded.set_exception(InvalidModel("broken"))
    with pytest.raises(InvalidModel):
        await anext(loading(world, "m"))


async def test_closing_the_stream_stops_the_load(world: World) -> None:
    world.set("m", "loading")
    async with aclosing(loading(world, "m")) as events:
        await anext(events)
    assert world.loaded.cancelled()


async def test_the_events_end_when_the_server_drains(world: World) -> None:
    async with aclosing(everything(world)) as events:
        await anext(events)
        world.draining = True
        assert [event async for event in events] == []


def disk(*names: str) -> Callable[[World], None]:
    return lambda world: world.on_disk.__setitem__(slice(None), names)


def pulling(**done: int) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.under_way = done

    return change


def requested_and_failed(world: World) -> None:
    """The other model is still unloaded: that is no change."""
    world.states = {}
    world.set("new", "unloaded")
    world.set("m", "failed", reason="crash")


def changed(name: str, state: ModelState) -> Callable[[World], None]:
    return lambda world: world.set(name, state)


def downloaded(name: str, done: int) -> dict[str, Any]:
    return {"model": name, "event": "download_progress", "data": {f"{name}.gguf": {"done": done, "total": 9}}}


def folder(name: str, event: str) -> dict[str, Any]:
    return {"model": name, "event": event, "data": {}}


@pytest.mark.parametrize(
    "steps",
    [
        [(changed("new", "loading"), [status_event("new", "loading", progress=progress(0))])],
        [(requested_and_failed, [status_event("m", "failed", failed=True, reason="crash")])],
        [(changed("m", "stopping"), [status_event("m", "unloading")])],
        [(disk("m", "a"), [folder("*", "models_reload")])],
        [(disk(), [folder("m", "model_remove")])],
        [(disk("b"), [folder("m", "model_remove"), folder("*", "models_reload")])],
        [(pulling(a=1), [downloaded("a", 1)]), (pulling(a=1, b=2), [downloaded("b", 2)])],
        [(pulling(a=1), [downloaded("a", 1)]), (pulling(a=2), [downloaded("a", 2)])],
    ],
)  # fmt: skip
async def test_changes_of_all_models(
    world: World, steps: list[tuple[Callable[[World], None], list[dict[str, Any]]]]
) -> None:
    world.set("m", "ready")
    world.on_disk = ["m"]
    async with aclosing(everything(world)) as events:
        assert await anext(events) == folder("*", "models_reload")
        for change, expected in steps:
            change(world)
            assert [await anext(events) for _ in expected] == expected


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        (("m", "a"), [folder("a", "download_finished"), folder("*", "models_reload")]),
        (("m",), [folder("a", "download_failed")]),
    ],
)
async def test_the_end_of_a_download(
    world: World, monkeypatch: pytest.MonkeyPatch, present: tuple[str, ...], expected: list[dict[str, Any]]
) -> None:
    monkeypatch.setattr(listing, "_FOLDER_POLL_S", 1000.0)  # only the end of a download has it looked at
    world.on_disk = ["m"]
    world.under_way = {"a": 1}
    async with aclosing(everything(world)) as events:
        assert [await anext(events), await anext(events)] == [
            folder("*", "models_reload"),
            downloaded("a", 1),
        ]
        disk(*present)(world)
        world.under_way = {}
        assert [await anext(events) for _ in expected] == expected
