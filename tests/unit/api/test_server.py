"""Which helper processes are ready, how long there has been nothing to do, and what ends with the server, even if an
interrupt cancels the end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn

from jan_serve.api.activity.totals import Totals
from jan_serve.api.server import ModelServer, serve_and_close
from jan_serve.http.lifecycle import Lifecycle
from jan_serve.store.totals import TotalFiles
from jan_serve.wiring.parts import ServerParts
from tests.support.clock import TurnedClock
from tests.support.servers.fronts import make_settings

pytestmark = pytest.mark.anyio


NO_JOURNAL = SimpleNamespace(is_busy=False)


class Part:
    """Stands in for every part; closing the one named `slow` waits for ever."""

    started = True

    def __init__(self, ended: list[str], slow: str = "") -> None:
        self.ended = ended
        self.slow = slow
        self.is_slow = asyncio.Event()

    def named(self, name: str) -> Any:
        async def close(*_: object) -> None:
            self.ended.append(name)
            if name == self.slow:
                self.is_slow.set()
                await asyncio.Event().wait()

        return type("Closing", (), {"close": close, "shutdown": close})

    async def serve(self, sockets: object) -> None:
        """It stops at once."""


@pytest.mark.parametrize("slow", ["application", "models", "control", "renderer"])
async def test_an_interrupt_of_the_end_skips_nothing(slow: str) -> None:
    ended: list[str] = []
    part = Part(ended, slow)
    server: Any = SimpleNamespace(serve=part.serve, application=part.named("application"))
    sock: Any = None
    fields = ("models", "renderer", "compiler", "decoder", "control")
    parts = ServerParts(make_settings(), **{name: part.named(name) for name in fields})
    serving = asyncio.ensure_future(serve_and_close(server, parts, [sock]))
    await part.is_slow.wait()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert ended == ["application", "models", "control", "decoder", "compiler", "renderer"]


class Helpers:
    def __init__(self) -> None:
        self.calls: list[str] = []

    async def start(self) -> None:
        self.calls.append("start")

    async def rest(self) -> None:
        self.calls.append("rest")


class Loaded:
    """A manager whose loaded models have these modalities."""

    def __init__(self) -> None:
        self.modalities: list[tuple[str, ...]] = []

    def snapshot(self) -> Any:
        models = [
            SimpleNamespace(state="ready", facts=SimpleNamespace(modalities=each)) for each in self.modalities
        ]
        return SimpleNamespace(models=[*models, SimpleNamespace(state="loading", facts=None)])


async def test_helpers_are_ready_once_a_model_needs_them(tmp_path: Path) -> None:
    renderer, decoder, models = Helpers(), Helpers(), Loaded()
    fakes: Any = {"models": models, "renderer": renderer, "compiler": Helpers(), "decoder": decoder}
    app: Any = SimpleNamespace(
        lifecycle=Lifecycle(),
        running=None,
        background=NO_JOURNAL,
        totals=lambda: Totals(TotalFiles(tmp_path)),
    )
    server = ModelServer(uvicorn.Config(lambda: None), app, ServerParts(make_settings(), **fakes), 0.0)
    steps: tuple[tuple[list[tuple[str, ...]], tuple[list[str], list[str]]], ...] = (
        ([], ([], [])),
        ([("text",)], (["start"], [])),
        ([("text",), ("text", "vision")], ([], ["start"])),
        ([("text", "vision")], ([], [])),
        ([("text",)], ([], [])),
        ([], ([], [])),
        ([("vision",)], (["start"], ["start"])),
        ([("text", "audio")], ([], [])),
    )
    for modalities, calls in steps:
        models.modalities = modalities
        await server.attend(0.0)
        assert (renderer.calls, decoder.calls) == calls
        renderer.calls.clear()
        decoder.calls.clear()
    models.modalities = []
    await server.attend(1e9)
    assert (renderer.calls, decoder.calls) == (["rest"], ["rest"])


@pytest.mark.parametrize("work", ["a model in memory", "a download in the background"])
async def test_a_server_is_idle_since_its_last_work(work: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, working = TurnedClock(), asyncio.Event()
    monkeypatch.setattr("jan_serve.api.server.time", SimpleNamespace(monotonic=clock))
    app: Any = SimpleNamespace(lifecycle=SimpleNamespace(idle_s=1e9), running=None, background=NO_JOURNAL)
    models = SimpleNamespace(snapshot=lambda: SimpleNamespace(models=loaded))
    parts: Any = SimpleNamespace(models=models)
    loaded: list[Any] = []
    background: set[asyncio.Task[Any]] = set()
    server = ModelServer(uvicorn.Config(lambda: None), app, parts, 0.0, background=background)
    clock.turn(100.0)
    assert server.idle_s() == 100.0
    if work == "a model in memory":
        loaded.append(SimpleNamespace(state="ready"))
    else:
        background.add(asyncio.create_task(working.wait()))
    for _ in range(2):
        clock.turn(1000.0)
        assert server.idle_s() == 0.0
    working.set()
    await asyncio.gather(*background)
    loaded.clear()
    background.clear()
    clock.turn(7.0)
    assert server.idle_s() == 7.0
