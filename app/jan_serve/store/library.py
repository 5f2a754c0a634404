"""The models folder as management sees it: what is there, what can be had from the hub, what can be deleted.

It loads no model and knows nothing of what is loaded.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from jan_serve.core.listed_model import HeaderFacts, ListedModel
from jan_serve.errors import JanServeError, ModelNotFound
from jan_serve.store.entry import ModelEntry
from jan_serve.store.gguf.model_file import MAX_PARTS, part_number
from jan_serve.store.index import ModelIndex, ModelRecord
from jan_serve.store.remove import Removed, remove_model
from jan_serve.store.resolve import ModelResolver

if TYPE_CHECKING:
    # Loaded with the first pull: the HTTP client takes a while.
    from jan_serve.store.hub.pull import Puller, PullPlan, PullWatcher


class ModelLibrary:
    """The models of one folder, and the hub behind it. Methods that are no coroutines block on the disk."""

    def __init__(
        self,
        resolver: ModelResolver,
        models_dir: Path,
        make_puller: Callable[[], Puller],
    ) -> None:
        """make_puller: called once, by the first pull."""
        self._resolver = resolver
        self._models_dir = models_dir
        self._index = ModelIndex(models_dir)
        self._make_puller = make_puller
        self._puller: Puller | None = None
        self._facts: dict[tuple[str, int, int], HeaderFacts | str] = {}
        """By file and state of it: what its header says, or why it cannot be served."""
        self._reading: asyncio.Task[None] | None = None

    async def models(self) -> tuple[ListedModel, ...]:
        """Every model that can be asked for, in some milliseconds.

        Facts that only a header says which nobody has read yet are left out; they are read now, and are there later.
        """
        entries = await asyncio.to_thread(self._resolver.entries)
        unread = any(not self._is_known(entry) for entry in entries)
        if unread and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self.read_headers(), name="read headers")
        return await asyncio.to_thread(lambda: tuple(self._listed(entry) for entry in entries))

    async def read_headers(self) -> None:
        """Read the headers that nobody has read yet, one at a time, so that a cancel can come between."""
        for entry in await asyncio.to_thread(self._resolver.entries):
            if self._is_known(entry):
                continue
            facts: HeaderFacts | str
            try:
                facts = await asyncio.to_thread(self._resolver.facts, entry)
            except JanServeError as error:
                facts = error.message
            self._facts[_stamp(entry)] = facts

    def find(self, name: str) -> str:
        """The canonical name of a model, or of the one that an adapter belongs to. Raises as ModelResolver.choose."""
        return self._resolver.choose(name)[0].name

    def remove(self, name: str) -> Removed:
        """Delete the files of the model of this canonical name, which no other name stands for.

        Raises ModelNotFound, InvalidRequest, StoreError.
        """
        entry = next((entry for entry in self._resolver.entries() if entry.name == name), None)
        if entry is None:
            raise ModelNotFound(name)
        return remove_model(entry, self._models_dir, self._index)

    async def plan(self, text: str, revision: str | None) -> PullPlan:
        """What pulling `text` would download. Raises as Puller.plan."""
        return await self._hub().plan(text, revision=revision)

    async def pull(self, plan: PullPlan, watcher: PullWatcher) -> ModelRecord:
        """Download it. Raises as Puller.run; cancelling keeps what came."""
        return await self._hub().run(plan, watcher)

    def _hub(self) -> Puller:
        # One for all: it lets callers that want the same file share one transfer.
        if self._puller is None:
            self._puller = self._make_puller()
        return self._puller

    def _is_known(self, entry: ModelEntry) -> bool:
        return _stamp(entry) in self._facts or (entry.record is not None and entry.record.facts is not None)

    def _listed(self, entry: ModelEntry) -> ListedModel:
        record = entry.record
        read = self._facts.get(_stamp(entry))
        facts = record.facts if record is not None and record.facts is not None else read
        inside = entry.origin == "models folder"
        return ListedModel(
            name=entry.name,
            aliases=(*(record.aliases if record is not None else ()), *entry.aliases),
            adapters=entry.adapters,
            source=record.source.kind if record is not None else "folder" if inside else entry.origin,
            source_name=record.source.name if record is not None else "",
            size_bytes=_size(entry),
            modified_at=entry.modified_ns // 1_000_000_000,
            can_remove=inside,
            facts=facts if isinstance(facts, HeaderFacts) else None,
            problem=facts if isinstance(facts, str) else None,
        )


def _stamp(entry: ModelEntry) -> tuple[str, int, int]:
    return str(entry.path), entry.size_bytes, entry.modified_ns


def _size(entry: ModelEntry) -> int:
    """All files of a model. Of a split one that was put there by hand, the parts that are beside the first."""
    record = entry.record
    if record is not None and record.source.kind != "folder":
        return sum(file.size_bytes for file in record.files)
    place = part_number(entry.path.name)
    if place is None or place[2] > MAX_PARTS:
        return entry.size_bytes
    total = entry.size_bytes
    for number in range(2, place[2] + 1):
        with contextlib.suppress(OSError):
            total += entry.path.with_name(f"{place[0]}-{number:05}-of-{place[2]:05}.gguf").stat().st_size
    return total
