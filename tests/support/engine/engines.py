"""The fake engine as a worker command, and a resolver whose model names decide how it behaves."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import msgspec

from jan_serve.core.models import ModelFacts, ModelSource
from jan_serve.core.placement import ModelParts
from jan_serve.errors import ModelNotFound
from jan_serve.ipc.messages import EngineSettings
from jan_serve.store.model_memory import Footprint
from jan_serve.supervisor.limits import ManagerLimits
from jan_serve.supervisor.models.eviction import Retention
from jan_serve.supervisor.models.model_manager import ModelManager
from jan_serve.supervisor.models.source_resolver import LoadNeeds, Resolved
from jan_serve.supervisor.models.updated_weights import UpdatedWeights
from tests.support.processes import wait_until

_ROOT = Path(__file__).resolve().parents[3]
_PATHS = [str(_ROOT), str(_ROOT / "app")]
_START = f"import sys; sys.path[:0] = {_PATHS}; from tests.support.engine.fake_engine import main; main()"

FAKE_ENGINE: tuple[str, ...] = (sys.executable, "-c", _START)
"""The worker command for tests; `fake_engine` lists its commands."""


class FakeResolver:
    """Knows the given names; the first is the default. Their paths lie in `folder` and need not exist."""

    def __init__(
        self, folder: Path, names: Sequence[str] = ("fake",), settings: EngineSettings | None = None
    ) -> None:
        self.folder = folder
        self.names = list(names)
        self.settings = settings or EngineSettings()
        self.revisions: dict[str, int] = {}
        self.sizes: dict[str, Footprint] = {}
        self.retentions: dict[str, Retention] = {}
        self.loads: list[tuple[str, str]] = []
        """Name, and what was wrong with the projector."""
        self.updated = UpdatedWeights()

    def resolve(self, name: str | None) -> Resolved:
        """Raises ModelNotFound."""
        if name is None:
            name = self.names[0]
        if name not in self.names:
            raise ModelNotFound(name)
        return Resolved(self._source(name), self.retentions.get(name, Retention()))

    def resolve_exact(self, name: str) -> ModelSource:
        """Raises ModelNotFound."""
        return self.resolve(name).source

    def needs(self, source: ModelSource) -> LoadNeeds:
        """The same for all models except for the size of the weights."""
        size = self.sizes.get(source.name)
        if size is None:
            return LoadNeeds(self.settings, Footprint(0, 0, 0, 0))
        settings = msgspec.structs.replace(self.settings, parts=ModelParts(input_bytes=size.weights))
        return LoadNeeds(settings, size)

    def loaded(self, source: ModelSource, facts: ModelFacts) -> None:
        self.loads.append((source.name, facts.projector_fault))

    def list(self) -> tuple[ModelSource, ...]:
        return tuple(self._source(name) for name in self.names)

    def change_file(self, name: str) -> None:
        """As if the model's file had been replaced."""
        self.revisions[name] = self.revisions.get(name, 0) + 1

    def _source(self, name: str) -> ModelSource:
        path = str(self.folder / f"{name}.gguf")
        return self.updated.current(
            ModelSource(name=name, path=path, revision=(self.revisions.get(name, 0),))
        )


@contextlib.asynccontextmanager
async def fake_manager(
    folder: Path,
    names: Sequence[str] = ("fake",),
    *,
    limits: ManagerLimits | None = None,
    settings: EngineSettings | None = None,
) -> AsyncGenerator[ModelManager]:
    """A ModelManager over fake engines; its workers are gone when the block ends."""
    manager = ModelManager(FakeResolver(folder, names, settings), FAKE_ENGINE, limits)
    try:
        yield manager
    finally:
        await manager.shutdown(0)


class Gate:
    """A FIFO that one request or load of the fake engine waits at (`!gate PATH`, `slow-load`) until the test opens it.

    Each waiting request needs a gate of its own: a second open() could still meet the first one's reader.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path)

    def open(self) -> None:
        """Release it. Blocks until it waits here, so that the release never comes too early. Fails after 10 s."""
        wait_until(self._try_to_open)

    def _try_to_open(self) -> bool:
        try:
            os.close(os.open(self.path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            if error.errno != errno.ENXIO:  # no reader yet
                raise
            return False
        return True
