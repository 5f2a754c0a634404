"""The models folder as management sees it: what is there, what can be had from the hub, what can be deleted.

It loads no model and knows nothing of what is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jan_serve.errors import JanServeError
from jan_serve.store.entry import ModelEntry
from jan_serve.store.index import HeaderFacts, ModelIndex, ModelRecord
from jan_serve.store.model_file import part_number
from jan_serve.store.remove import Removed, remove_model
from jan_serve.store.resolve import ModelResolver

if TYPE_CHECKING:
    # Loaded with the first pull: the HTTP client takes a while.
    from jan_serve.store.pull import Puller, PullPlan, PullWatcher


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model that is here. size_bytes: all its files. source: `hub`, `ollama` …, `folder`, `built in`, `--model`.

    facts: None where the header cannot be read, for the reason in `problem`.
    """

    name: str
    aliases: tuple[str, ...]
    source: str
    source_name: str
    size_bytes: int
    modified_at: int
    can_remove: bool
    facts: HeaderFacts | None
    problem: str | None


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

    def list(self) -> tuple[ListedModel, ...]:
        """Every model that can be asked for. Headers that nobody has read yet are read, once."""
        return tuple(self._listed(entry) for entry in self._resolver.entries())

    def find(self, name: str) -> str:
        """The canonical name of a model. Raises ModelNotFound, InvalidRequest."""
        return self._resolver.resolve(name).name

    def remove(self, name: str) -> Removed:
        """Delete a model's files. Raises ModelNotFound, InvalidRequest, StoreError."""
        return remove_model(self._resolver.resolve(name), self._models_dir, self._index)

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

    def _listed(self, entry: ModelEntry) -> ListedModel:
        facts: HeaderFacts | None = None
        problem: str | None = None
        size_bytes = entry.size_bytes
        try:
            facts = self._resolver.facts(entry)
            if entry.record is not None:
                size_bytes = sum(file.size_bytes for file in entry.record.files)
            elif part_number(entry.path.name) is not None:
                size_bytes = self._resolver.model_file(entry.path, entry.name).file_bytes
        except JanServeError as error:
            problem = error.message
        source = entry.record.source if entry.record is not None else None
        inside = entry.origin == "models folder"
        return ListedModel(
            name=entry.name,
            aliases=entry.record.aliases if entry.record is not None else (),
            source=source.kind if source is not None else "folder" if inside else entry.origin,
            source_name=source.name if source is not None else "",
            size_bytes=size_bytes,
            modified_at=entry.modified_ns // 1_000_000_000,
            can_remove=inside,
            facts=facts,
            problem=problem,
        )
