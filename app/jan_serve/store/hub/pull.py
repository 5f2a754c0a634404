"""Pulls models from the hub by plans, which write nothing, and finds pulled models that have newer files there."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import Final

import httpx2
import msgspec

from jan_serve.errors import HubAccessDenied, HubNotFound, InsufficientMemory, InvalidModel, InvalidRequest
from jan_serve.store.files import check_room, file_stamp, flush_folder, writing_to
from jan_serve.store.gguf.model_file import read_model_file
from jan_serve.store.gguf.quantisation import QuantisedFile, bits_of, choose, gigabytes
from jan_serve.store.hub.download import Download, DownloadWatcher, PartialFolder, download
from jan_serve.store.hub.hub_http import HubAccess, HubHttp
from jan_serve.store.hub.references import (
    Catalogue,
    CatalogueEntry,
    HubReference,
    checked_revision,
    looks_like_reference,
    parse_reference,
)
from jan_serve.store.hub.repository import (
    HubFile,
    HubModel,
    Repository,
    best_projector,
    file_url,
    only_one,
    raise_for_status,
    read_repository,
    select,
)
from jan_serve.store.hub.retries import RetryPolicy
from jan_serve.store.index import FileRecord, ModelIndex, ModelRecord, Source
from jan_serve.store.model_memory import FreeMemory, memory_needed
from jan_serve.store.model_names import canonical_name


class NewerFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a pulled model that differ from the hub's. reference: pulls them. commit: the hub's. n_bytes: to
    download. gone: the hub has the model no more, or refuses it."""

    model: str
    reference: str
    pulled: str | None
    commit: str | None = None
    files: tuple[str, ...] = ()
    n_bytes: int = 0
    gone: bool = False


def _compared(record: ModelRecord, repository: Repository | None) -> NewerFiles | None:
    repo = record.source.name
    paths = {_path_in(repo, file): file for file in record.all_files}
    reference = f"{repo}/{_path_in(repo, record.files[0])}"
    models = () if repository is None else repository.models
    model = next((model for model in models if f"{repo}/{model.files[0].path}" == reference), None)
    if repository is None or model is None:
        return NewerFiles(model=record.name, reference=reference, pulled=record.source.revision, gone=True)
    now = (*model.files, *(file for file in repository.projectors if file.path in paths))
    changed = [file for file in now if file.path not in paths or paths[file.path].sha256 != file.sha256]
    if not changed:
        return None
    return NewerFiles(
        model=record.name,
        reference=reference,
        pulled=record.source.revision,
        commit=repository.commit,
        files=tuple(file.path for file in changed),
        n_bytes=sum(file.size_bytes for file in changed),
    )


def _path_in(repo: str, file: FileRecord) -> str:
    return file.path.removeprefix(f"{repo}/")


_PUBLIC_HUB: Final = HubAccess().endpoint


class PullPlan(msgspec.Struct, frozen=True):
    """name: the model's canonical name. reason: why this quantisation was chosen, if none was named."""

    name: str
    reference: HubReference
    commit: str
    model: HubModel
    projector: HubFile | None
    aliases: tuple[str, ...]
    reason: str | None

    @property
    def files(self) -> tuple[HubFile, ...]:
        """Files in the order of download. The first one of a split model comes last: it makes the model visible."""
        extra = (self.projector,) if self.projector else ()
        return (*extra, *self.model.files[1:], self.model.files[0])

    @property
    def n_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


class Puller:
    """Pulls from one hub into one models folder. For one event loop; calls may overlap."""

    def __init__(
        self,
        models_dir: Path,
        access: HubAccess,
        *,
        catalogue: Catalogue | None = None,
        free_memory: Callable[[], FreeMemory] | None = None,
        retry_policy: RetryPolicy | None = None,
    ) -> None:
        """free_memory: called in a thread, only to choose a quantisation."""
        self._models_dir = models_dir
        self._access = access
        self._catalogue = catalogue or Catalogue()
        self._free_memory = free_memory
        self._retry_policy = retry_policy
        self._index = ModelIndex(models_dir)
        self._partials = PartialFolder(models_dir)

    async def plan(self, text: str, *, revision: str | None = None, with_projector: bool = True) -> PullPlan:
        """Resolve `text`, a catalogue name or a hub reference, at its current revision. Raises InvalidRequest,
        HubNotFound, HubAccessDenied, HubError, HubUnavailable, Offline; InsufficientMemory if none was named and no
        quantisation fits this machine."""
        entry: CatalogueEntry | None = None
        if looks_like_reference(text):
            reference = parse_reference(text)
        else:
            reference, entry = self._catalogue.reference(text)
        if revision is not None:
            if reference.revision not in (None, revision):
                reason = f"Two revisions are named: {reference.revision} and {revision}."
                raise InvalidRequest(reason, param="revision")
            reference = msgspec.structs.replace(reference, revision=checked_revision(revision))
        async with HubHttp(self._access, self._retry_policy) as http:
            repository = await read_repository(http, reference)
        model, reason = await self._choose(repository, reference)
        name = canonical_name(PurePosixPath(repository.repo, model.files[0].path))
        preferred = entry.mmproj if entry else None
        projector = best_projector(repository, model, preferred) if with_projector else None
        is_suggested = entry is not None and model.files[0].path == entry.file
        aliases = (entry.name, *entry.known_as) if entry is not None and is_suggested else ()
        return PullPlan(name, reference, repository.commit, model, projector, aliases, reason)

    async def run(self, plan: PullPlan, watcher: DownloadWatcher) -> ModelRecord:
        """Download missing files and record the model. Cancelling keeps received data for the next attempt. Raises
        InsufficientStorage, StoreError, DigestMismatch, InvalidModel, HubError, HubUnavailable, Offline."""
        await asyncio.to_thread(self._partials.sweep)
        records = await asyncio.to_thread(self._index.records)
        counts: dict[str, int] = {}
        missing: list[HubFile] = []
        for file in plan.files:
            if await asyncio.to_thread(self._have, file, plan, records):
                _FileWatcher(counts, file, watcher).received(file.size_bytes)
            else:
                missing.append(file)
        if missing:
            kept = [self._partials.n_kept(file.sha256) for file in missing]
            to_come = sum(max(0, file.size_bytes - n) for file, n in zip(missing, kept, strict=True))
            await asyncio.to_thread(check_room, self._models_dir, to_come)
            async with HubHttp(self._access, self._retry_policy) as http:
                for file in missing:
                    await self._get(http, plan, file, _FileWatcher(counts, file, watcher))
        with writing_to(self._models_dir):
            return await asyncio.to_thread(self._record, plan)

    async def newer(self, records: Iterable[ModelRecord]) -> list[NewerFiles]:
        """Those with newer files here: a request per repository. Raises HubError, HubUnavailable, Offline."""
        ours = [
            record
            for record in records
            if record.source.kind == "hub"
            and (record.source.endpoint or _PUBLIC_HUB) == self._access.endpoint
        ]
        listed: dict[str, Repository | None] = {}
        async with HubHttp(self._access, self._retry_policy) as http:
            for repo in sorted({record.source.name for record in ours}):
                try:
                    listed[repo] = await read_repository(http, HubReference(repo))
                except (HubNotFound, HubAccessDenied):
                    listed[repo] = None
        found = (_compared(record, listed[record.source.name]) for record in ours)
        return sorted((newer for newer in found if newer is not None), key=lambda newer: newer.model)

    async def _choose(self, repository: Repository, reference: HubReference) -> tuple[HubModel, str | None]:
        models = select(repository, reference)
        labels = {model.quantisation for model in models}
        if len(models) == 1 or len(labels) == 1 or self._free_memory is None:
            return only_one(repository, models), None
        free = await asyncio.to_thread(self._free_memory)
        candidates = [
            QuantisedFile(label, model.n_bytes, memory_needed(model.n_bytes, bits_of(label)))
            for model in models
            if (label := model.quantisation)
        ]
        choice = choose(candidates, free.usable)
        if choice is None:
            smallest = min(candidates, key=lambda candidate: candidate.n_memory)
            raise InsufficientMemory(
                f"No quantisation of {repository.repo} fits the {gigabytes(free.usable)} of memory that are free: the"
                f" smallest, {smallest.label}, needs about {gigabytes(smallest.n_memory)}. Pull a smaller model, or"
                f" {repository.repo}:{smallest.label} to have it anyway.",
                retry_after=None,
            )
        chosen = [model for model in models if model.quantisation == choice.label]
        return only_one(repository, chosen), f"{choice.label}: it {choice.reason}."

    def _target(self, plan: PullPlan, file: HubFile) -> Path:
        return self._models_dir.joinpath(*plan.reference.repo.split("/"), *file.path.split("/"))

    def _have(self, file: HubFile, plan: PullPlan, records: dict[str, ModelRecord]) -> bool:
        """Whether the index has the file at its path, or it can be linked from elsewhere in the store."""
        target = self._target(plan, file)
        # Digests of imports are unverified.
        for record in records.values():
            for known in record.all_files if record.source.kind == "hub" else ():
                is_same = (known.sha256, known.size_bytes) == (file.sha256, file.size_bytes)
                path = self._models_dir / known.path
                if is_same and _is_unchanged(path, known, record) and (path == target or _link(path, target)):
                    return True
        return False

    async def _get(self, http: HubHttp, plan: PullPlan, file: HubFile, watcher: DownloadWatcher) -> None:
        url = file_url(self._access.endpoint, plan.reference.repo, plan.commit, file.path)
        request = Download(url, file.name, file.size_bytes, file.sha256, self._target(plan, file))

        def on_status(status: int, headers: httpx2.Headers) -> None:
            raise_for_status(http, plan.reference, status, headers)

        await download(http, self._partials, request, watcher, on_status)

    def _record(self, plan: PullPlan) -> ModelRecord:
        """Check the whole model and write its record. Deletes the files if it is not a valid model."""
        first = self._target(plan, plan.model.files[0])
        try:
            model = read_model_file(first)
        except InvalidModel:
            for file in plan.model.files:
                with contextlib.suppress(OSError):
                    self._target(plan, file).unlink(missing_ok=True)
            raise
        # Read now: a download takes hours, and records change meanwhile.
        records = self._index.records()
        older = records.get(plan.name)
        aliases = tuple(dict.fromkeys((*plan.aliases, *(older.aliases if older else ()))))
        record = ModelRecord(
            name=plan.name,
            source=Source(
                kind="hub",
                name=plan.reference.repo,
                revision=plan.commit,
                endpoint=self._access.endpoint if self._access.endpoint != _PUBLIC_HUB else None,
            ),
            files=tuple(self._file_record(plan, file) for file in plan.model.files),
            projector=self._file_record(plan, plan.projector) if plan.projector else None,
            modified_ns=first.stat().st_mtime_ns,
            added_at=time.time(),
            aliases=aliases,
            facts=model.facts(),
        )
        self._index.put(record)
        for other in records.values():
            # A catalogue name means the model that was last pulled by it.
            if other.name != record.name and set(other.aliases) & set(plan.aliases):
                kept = tuple(alias for alias in other.aliases if alias not in plan.aliases)
                self._index.put(msgspec.structs.replace(other, aliases=kept))
        return record

    def _file_record(self, plan: PullPlan, file: HubFile) -> FileRecord:
        path = self._target(plan, file).relative_to(self._models_dir).as_posix()
        return FileRecord(path=path, size_bytes=file.size_bytes, sha256=file.sha256)


class _FileWatcher(msgspec.Struct, frozen=True):
    """Adds one file's bytes to those of the whole pull. counts: received bytes by path."""

    counts: dict[str, int]
    file: HubFile
    watcher: DownloadWatcher

    def received(self, n_bytes: int) -> None:
        self.counts[self.file.path] = n_bytes
        self.watcher.received(sum(self.counts.values()))

    def note(self, text: str) -> None:
        self.watcher.note(text)


def _is_unchanged(path: Path, known: FileRecord, record: ModelRecord) -> bool:
    """Whether size and modification time of a recorded file are unchanged."""
    stamp = file_stamp(path)
    if stamp is None or stamp[1] != known.size_bytes:
        return False
    return known.path != record.files[0].path or stamp[0] == record.modified_ns


def _link(source: Path, target: Path) -> bool:
    """Hard-link a file of the store instead of downloading it again. False if that is impossible."""
    if target.exists() or source.is_symlink():
        return False
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(source, target)
        flush_folder(target.parent)
    except OSError:
        return False
    return True
