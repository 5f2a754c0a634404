"""Events of loads, downloads and the models folder, from states that the test sets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import pytest

from jan_serve.api.management import model_events
from jan_serve.api.management.model_events import all_events, load_events
from jan_serve.api.management.pulls import PullProgress
from jan_serve.core.models.model_status import ManagerSnapshot, ModelState, ModelStatus
from jan_serve.errors import InvalidModel
from tests.support.processes import until

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

    async def load(self, name: str, keep_alive_s: float | None) -> str:
        return await self.loaded

    async def models(self) -> list[Any]:
        return [SimpleNamespace(name=name) for name in self.on_disk]

    def downloads(self) -> tuple[PullProgress, ...]:
        return tuple(PullProgress(name, f"{name}.gguf", done, 9) for name, done in self.under_way.items())


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> World:
    for name in ("_LOAD_POLL_S", "_POLL_S", "_FOLDER_POLL_S"):
        monkeypatch.setattr(model_events, name, 0.001)
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
    monkeypatch.setattr(model_events, "_FOLDER_POLL_S", 1000.0)  # only the end of a download has it looked at
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
