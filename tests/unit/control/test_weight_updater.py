"""New weights are served after a trial; whatever fails before leaves the old ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from jan_serve.control import weight_updater
from jan_serve.control.weight_updater import WeightUpdater
from jan_serve.errors import InsufficientMemory, InvalidModel, InvalidRequest, JanServeError
from jan_serve.store.gguf.weight_update import WeightUpdate
from jan_serve.supervisor.limits import WorkerLimits
from jan_serve.supervisor.models.updated_sources import UpdatedSources
from tests.support.engines import FakeResolver
from tests.unit.store.gguf_builder import GgufBytes

pytestmark = pytest.mark.anyio


class Server:
    """An updater over one model; `problem` is how its next load ends, `trial` how the trial does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "a.gguf").write_bytes(weights(1.0))
        self.sources = UpdatedSources(FakeResolver(folder, ("a",)))
        self.collected = WeightUpdate(folder / "updates")
        self.loads: list[str] = []
        self.tried: list[str] = []
        self.problem: BaseException | None = None
        self.trial: JanServeError | None = None
        self.awake = True
        self.updater = WeightUpdater(
            self.sources, self.load, self.collected, ("worker",), WorkerLimits(), may_load=lambda: self.awake
        )

    async def load(self, name: str | None) -> str:
        self.loads.append(self.serves())
        if self.problem is not None:
            raise self.problem
        return "a"

    async def try_model(self, name: str, path: str, *rest: object) -> None:
        assert Path(path).is_file()
        self.tried.append(path)
        if self.trial is not None:
            raise self.trial

    def serves(self) -> str:
        return self.sources.resolve("a").path

    def files(self) -> set[str]:
        return {path.name for path in (self.folder / "updates").rglob("*.gguf")}
