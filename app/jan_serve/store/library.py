"""The models folder for management: lists, pulls and deletes models. Knows nothing of loaded models."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from jan_serve.core.measurements import Calibration
from jan_serve.core.models import MAX_ADAPTERS, HeaderFacts, ListedModel, Variant
from jan_serve.core.split_names import MAX_PARTS, PartName
from jan_serve.errors import EngineCrashed, InvalidModel, InvalidRequest, JanServeError, ModelNotFound
from jan_serve.helpers.kinds import ReadHeader
from jan_serve.store.blobs import Blobs
from jan_serve.store.files import writing_to
from jan_serve.store.gguf.gguf_header import GgufHeader, read_gguf_header
from jan_serve.store.gguf.model_file import read_model_file
from jan_serve.store.index import ModelEntry, ModelIndex, ModelRecord, is_named
from jan_serve.store.measurements import CalibrationIndex
from jan_serve.store.model_folder import Removed, check_removable, remove_model
from jan_serve.store.model_names import exact_matches
from jan_serve.store.resolve import ModelResolver, as_configured, check_name

if TYPE_CHECKING:
    # Imported with the first pull: importing the HTTP client is slow.
    from jan_serve.store.hub.download import DownloadWatcher
    from jan_serve.store.hub.pull import Puller, PullPlan
    from jan_serve.store.imports.link import Assessment
    from jan_serve.store.model_memory import FreeMemory


_log: Final = logging.getLogger("jan_serve.store")


class HeaderReader(Protocol):
    """Reads headers elsewhere than in this process."""

    async def ask(self, request: ReadHeader) -> HeaderFacts:
        """What lists say of the model. Raises InvalidModel; EngineCrashed, Unavailable."""
        ...

    async def rest(self) -> None:
        """There is nothing to read for a while."""
        ...

    async def close(self) -> None: ...


class ModelLibrary:
    """The models of one folder, and a hub to pull from. Methods that are not coroutines block on the disk."""

    def __init__(
        self,
        resolver: ModelResolver,
        models_dir: Path,
        make_puller: Callable[[], Puller],
        reader: HeaderReader | None = None,
        free_memory: Callable[[], FreeMemory] | None = None,
        other_programs: Callable[[], Mapping[str, Sequence[Path]]] = dict,
    ) -> None:
        """make_puller: called once, at the first pull. reader: of headers for lists; without it, threads read them.
        free_memory: measures what models may take; blocks for about a second where there are accelerators.
        other_programs: their models folders, by the names of FINDERS."""
        self.free_memory = free_memory
        self._resolver = resolver
        self._models_dir = models_dir
        self._index = ModelIndex(models_dir)
        self._variants = resolver.variants
        self._calibrations = CalibrationIndex(models_dir)
        self.blobs = Blobs(models_dir, self._index)
        self._make_puller = make_puller
        self._other_programs = other_programs
        self._puller: Puller | None = None
        self._reader = reader
        self._facts: dict[tuple[str, int, int], HeaderFacts | str] = {}
        """Facts of the header by path, size and modification time, or why the model cannot be served."""
        self._reading: asyncio.Task[None] | None = None

    async def models(self) -> tuple[ListedModel, ...]:
        """All models, within milliseconds. A background task reads the headers that were not read yet."""
        listed, complete = await asyncio.to_thread(self._models)
        if not complete:
            self.start_reading()
        return listed

    def start_reading(self) -> asyncio.Task[None]:
        """The background task that reads the missing headers. It starts unless it runs."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_headers(), name="read headers")
        return self._reading

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._reader is not None:
            await self._reader.close()

    async def _read_headers(self) -> None:
        """One at a time, so that it can be cancelled. What says nothing about the file ends it, until the next list."""
        entries = await asyncio.to_thread(self._resolver.entries)
        try:
            for entry in entries:
                if not self._is_known(entry):
                    self._facts[_stamp(entry)] = await self._facts_or_problem(entry)
            # The records that were written meanwhile are read here, for a thousand models 0.1 s, rather than by a list.
            await asyncio.to_thread(self._models)
        except JanServeError as error:
            _log.warning("headers of models are not read now: %s", error.message)
        finally:
            if self._reader is not None:
                await self._reader.rest()

    async def _facts_or_problem(self, entry: ModelEntry) -> HeaderFacts | str:
        try:
            # The index keeps no facts of files outside the folder, which are few: the load reads their headers as well.
            if self._reader is None or entry.origin != "models folder":
                return await asyncio.to_thread(self._resolver.facts, entry)
            facts = await self._reader.ask(ReadHeader(path=str(entry.path)))
        except (InvalidModel, ModelNotFound, EngineCrashed) as error:
            return error.message
        await asyncio.to_thread(self._resolver.keep_facts, entry, facts)
        return facts

    def _models(self) -> tuple[tuple[ListedModel, ...], bool]:
        entries = self._resolver.entries()
        is_complete = all(map(self._is_known, entries))  # asked first: a header may be read meanwhile
        return tuple(map(self._listed, entries)), is_complete

    def find(self, name: str) -> str:
        """The canonical name of a model, or of an adapter's model. Raises as ModelResolver.resolve_with_adapter."""
        return self._resolver.resolve_with_adapter(name)[0].name

    def default(self) -> str | None:
        """The canonical name of the model of requests that name none. None if there is none."""
        try:
            entry = self._resolver.default().entry
        except (InvalidRequest, ModelNotFound):  # the configured one is gone
            return None
        return entry.name if entry is not None else None

    def unknown(self, name: str) -> ModelNotFound:
        return self._resolver.unknown(name)

    def details(self, name: str) -> tuple[ListedModel, GgufHeader]:
        """A model and the header of its first file. Raises as `find`, and InvalidModel for a file that is damaged."""
        entry = self._resolver.resolve_with_adapter(name)[0]
        facts = self._resolver.effective_facts(entry)
        listed = msgspec.structs.replace(self._listed(entry), facts=facts, problem=None)
        return listed, read_gguf_header(entry.path)

    def variant(self, name: str) -> Variant | None:
        """The variant of this name, if there is one."""
        return self._variants.get(name)

    def check_variant_name(self, name: str, base: str | None = None) -> None:
        """Raises InvalidRequest if another model than `base` has this name already."""
        check_name(name)
        if self._variants.get(name) is not None:
            return
        for entry in exact_matches(name, self._resolver.entries()):
            if entry.name != base or name == base:
                raise InvalidRequest(f"`{name}` is a name of the model {entry.name}", param="model")

    def add_variant(self, variant: Variant) -> None:
        """Add or replace a variant. Raises as `check_variant_name`; StoreError."""
        self.check_variant_name(variant.name, variant.base)
        with writing_to(self._models_dir):
            self._variants.put(variant)

    def keep_adapter(self, sha256: str, variant: str, base: str) -> None:
        """Keep an upload as the LoRA adapter of a variant. base: canonical name of its model. Raises InvalidRequest,
        ModelNotFound, InvalidModel for a file that does not fit the model, StoreError."""
        self.check_variant_name(variant, base)
        entry = self._resolver.resolve(base)
        others = [name for name, _ in entry.variant_adapters if not is_named(name, variant)]
        if len(entry.adapters) + len(others) >= MAX_ADAPTERS:
            raise InvalidRequest(
                f"adapters: {base} has {MAX_ADAPTERS} LoRA adapters, which is the limit", param="adapters"
            )
        architecture = self._resolver.model_file(entry.path, entry.name).architecture
        self.blobs.keep_adapter(sha256, self._variants.adapter_path(sha256), variant, architecture)

    def remove_variant(self, name: str) -> str | None:
        """Delete a variant. Returns the model whose file was uploaded for it alone. Raises StoreError."""
        variant = self._variants.get(name)
        if variant is None:
            return None
        with writing_to(self._models_dir):
            self._variants.remove(variant.name)
        for base in self._resolver.entries():
            if base.name == variant.base and base.record and base.record.source.kind == "created":
                return None if base.variants else base.name
        return None

    def check_removable(self, name: str) -> None:
        """Raises as `ModelResolver.resolve_exact`; InvalidRequest for a model that `remove` rejects."""
        entry = self._resolver.resolve_exact(name)
        check_removable(entry, self._models_dir)
        if entry.variants:
            raise InvalidRequest(
                f"`{entry.name}` is the file of {', '.join(entry.variants[:5])}: delete these first",
                param="model",
            )

    def remove(self, name: str) -> Removed:
        """Delete the files of a model. name: canonical. Raises ModelNotFound, InvalidRequest, StoreError."""
        for entry in self._resolver.entries():
            if entry.name == name:
                return remove_model(entry, self._models_dir, self._index)
        raise ModelNotFound(name)

    def calibration(self, name: str | None) -> tuple[str, Calibration | None]:
        """The canonical name of a model, and its calibration. Raises as `find`."""
        entry = self._resolver.resolve_with_adapter(name)[0]
        return entry.name, self._calibrations.get(entry)

    def keep_calibration(self, name: str | None, calibration: Calibration | None) -> str:
        """Replace or (None) delete a model's calibration; returns its canonical name. Raises as `find`; StoreError."""
        entry = self._resolver.resolve_with_adapter(name)[0]
        with writing_to(self._models_dir):
            if calibration is None:
                self._calibrations.remove(entry.name)
            else:
                self._calibrations.put(entry, calibration)
        return entry.name

    async def plan(self, text: str, revision: str | None) -> PullPlan:
        return await self._hub().plan(text, revision=revision)

    async def pull(self, plan: PullPlan, watcher: DownloadWatcher) -> ModelRecord:
        """Raises as Puller.run. Cancelling keeps received data."""
        return await self._hub().run(plan, watcher)

    def elsewhere(self) -> list[Assessment]:
        """The models of other programs, as far as is known without a look into their files."""
        # Imported on first use, as in `take_over`: most servers never look.
        from jan_serve.store.imports.finders import find
        from jan_serve.store.imports.link import looked_at

        return [
            looked_at(model, self._models_dir)
            for program, folders in self._other_programs().items()
            for model in find(program, folders)
        ]

    async def take_over(self, name: str) -> ModelRecord:
        """Link a model of `elsewhere` into the folder. Raises InvalidRequest, InvalidModel, StoreError."""
        from jan_serve.store.imports.link import ImportStatus, take_over

        named = [item for item in await asyncio.to_thread(self.elsewhere) if item.name == name]
        usable = [item for item in named if item.state is ImportStatus.NEW]
        if not usable:
            reason = named[0].reason or named[0].state.value if named else "no other program has it"
            raise InvalidRequest(f"`{name}` cannot be imported: {reason}", param="model")
        path = usable[0].found.files[0].path
        if self._reader is not None:
            facts = await self._reader.ask(ReadHeader(path=str(path)))
        else:
            facts = await asyncio.to_thread(lambda: read_model_file(path).facts())
        found = msgspec.structs.replace(usable[0], facts=facts)
        return await asyncio.to_thread(take_over, found, self._models_dir, self._index)

    def _hub(self) -> Puller:
        if self._puller is None:
            self._puller = self._make_puller()
        return self._puller

    def _is_known(self, entry: ModelEntry) -> bool:
        record = entry.record
        return _stamp(entry) in self._facts or (record is not None and self._resolver.has_all_facts(record))

    def _listed(self, entry: ModelEntry) -> ListedModel:
        record = entry.record
        read = self._facts.get(_stamp(entry)) or (record.facts if record is not None else None)
        facts = as_configured(read, entry) if isinstance(read, HeaderFacts) else None
        projector = None
        if facts is not None and facts.n_embd is not None and entry.projectors:
            projector = self._resolver.fitting_projector(entry, facts.n_embd)
        is_in_folder = entry.origin == "models folder"
        return ListedModel(
            name=entry.name,
            aliases=(*(record.aliases if record is not None else ()), *entry.aliases, *entry.variants),
            adapters=entry.adapters,
            source=record.source.kind if record is not None else "folder" if is_in_folder else entry.origin,
            source_name=record.source.name if record is not None else "",
            size_bytes=_size(entry),
            modified_at=entry.modified_ns // 1_000_000_000,
            can_remove=is_in_folder,
            facts=facts,
            problem=read if isinstance(read, str) else None,
            sha256=record.files[0].sha256 if record is not None else None,
            modalities=projector.senses if projector is not None else (),
        )


def _stamp(entry: ModelEntry) -> tuple[str, int, int]:
    return str(entry.path), entry.size_bytes, entry.modified_ns


def _size(entry: ModelEntry) -> int:
    """Size of all files. For a split model that the user added, those of the parts that exist."""
    record = entry.record
    if record is not None and record.source.kind != "folder":
        return sum(file.size_bytes for file in record.files)
    part = PartName.parse(entry.path.name)
    if part is None or part.count > MAX_PARTS:
        return entry.size_bytes
    total = entry.size_bytes
    for file in part.all_files()[1:]:
        with contextlib.suppress(OSError):
            total += entry.path.with_name(file).stat().st_size
    return total
