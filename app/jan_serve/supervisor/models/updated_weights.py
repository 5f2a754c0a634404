"""Files with newer weights, in place of models' own files."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from jan_serve.core.models import ModelSource
from jan_serve.store.files import file_stamp


class _Update(NamedTuple):
    """own: the model's own file. stamp: of that file at the time of the update."""

    own: str
    stamp: tuple[int, int] | None
    path: str
    number: int


class UpdatedWeights:
    """An update holds until it is undone, or until the model's own file changes. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._updates: dict[str, _Update] = {}

    def update(self, source: ModelSource, path: str, number: int) -> Callable[[], None]:
        """Serve the model of `current` from that file. number: unique. Returns what undoes the update."""
        with self._lock:
            before = self._updates.get(source.name)
            own = before.own if before is not None else source.path
            update = self._updates[source.name] = _Update(own, file_stamp(Path(own)), path, number)

        def undo() -> None:
            with self._lock:
                if self._updates.get(source.name) is not update:
                    return  # the model's own file was replaced since
                if before is None:
                    del self._updates[source.name]
                else:
                    self._updates[source.name] = before

        return undo

    def current(self, source: ModelSource) -> ModelSource:
        """source: with the model's own file. The result has the file to load."""
        with self._lock:
            update = self._updates.get(source.name)
            if update is None:
                return source
            if update.stamp != file_stamp(Path(source.path)):
                del self._updates[source.name]  # the model's own file was replaced since: it is newer
                return source
        return msgspec.structs.replace(source, path=update.path, revision=(*source.revision, update.number))
