"""What is kept of models in small files beside them (source, digests, facts, variants), and what a model is.

The folder determines which models exist; the index only adds to that. Damage is limited to one record.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from jan_serve.core.latest_tag import without_latest_tag
from jan_serve.core.models import HeaderFacts, Variant
from jan_serve.store.files import RecordFiles, raise_if_exhausted, record_file

STATE_FOLDER: Final = ".jan-serve"
"""Hidden folder in the models folder for the index and partial downloads. Listing skips hidden folders."""
_MAX_RECORDS: Final = 20_000

SourceKind = Literal["hub", "ollama", "lmstudio", "jan", "hf-cache", "created", "folder"]


class Source(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Origin of a model. name: `org/repo` on the hub, or the other program's name for an import. path: the linked
    original. revision: the commit. endpoint: the hub, if it is not the public one."""

    kind: SourceKind
    name: str = ""
    revision: str | None = None
    path: str | None = None
    endpoint: str | None = None


class FileRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """path: relative to the models folder, with `/`. sha256: None if not computed."""

    path: str
    size_bytes: int
    sha256: str | None = None


class ModelRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model. files: in order, without the multimodal projector. modified_ns: of the first file when the record
    was written. added_at: seconds since 1970."""

    name: str
    source: Source
    files: tuple[FileRecord, ...]
    modified_ns: int
    added_at: float
    projector: FileRecord | None = None
    aliases: tuple[str, ...] = ()
    facts: HeaderFacts | None = None
    version: int = 1

    @property
    def all_files(self) -> tuple[FileRecord, ...]:
        """With the projector."""
        return (*self.files, self.projector) if self.projector is not None else self.files

    def describes(self, size_bytes: int, modified_ns: int) -> bool:
        """Whether the model's first file is unchanged since the record was written."""
        return bool(self.files) and (self.files[0].size_bytes, self.modified_ns) == (size_bytes, modified_ns)


class ModelIndex:
    """The records of one models folder. Thread-safe; every method blocks briefly on the disk."""

    def __init__(self, models_dir: Path) -> None:
        folder = models_dir / STATE_FOLDER / "index"
        self._files = RecordFiles(ModelRecord, "a record of the model index", folder, 1 << 20)
        self._lock = threading.Lock()
        self._read: dict[str, tuple[tuple[int, int], ModelRecord | None]] = {}

    def records(self) -> dict[str, ModelRecord]:
        """All readable records by model name. Reads only changed files. Raises Unavailable. A record is replaced,
        never changed in place: an unchanged folder has unchanged records."""
        try:
            with os.scandir(self._files.folder) as folder:
                entries = [entry for entry in folder if entry.name.endswith(".json")]
        except OSError as error:
            raise_if_exhausted(error)
            return {}
        found: dict[str, ModelRecord] = {}
        with self._lock:
            known, self._read = self._read, {}
            for entry in entries[:_MAX_RECORDS]:
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                stamp = (status.st_mtime_ns, status.st_size)
                cached = known.get(entry.name)
                if cached is None or cached[0] != stamp:
                    record = self._files.read(entry.path)
                    is_own = record is not None and record.files and record_file(record.name) == entry.name
                    cached = stamp, record if is_own else None
                self._read[entry.name] = cached
                if cached[1] is not None:
                    found[cached[1].name] = cached[1]
        return found

    def put(self, record: ModelRecord) -> None:
        """Write a record, replacing an older one of that name atomically. Raises OSError."""
        self._files.put(record.name, record)

    def remove(self, name: str) -> None:
        """Delete the record of a model, if there is one. Raises OSError."""
        self._files.remove(name)

    def add(self, record: ModelRecord) -> None:
        """Write a record as `put` does, but one that a later version wrote stays: it says more. Raises OSError."""
        if not self._files.is_later(record.name):
            self.put(record)


class ModelEntry(msgspec.Struct, frozen=True, cache_hash=True):
    """name: canonical: the path in the models folder with `/`, without `.gguf`.

    size_bytes and modified_ns (nanoseconds since 1970) are those of a split model's first file. record: from the index;
    None if the user added the file and nothing read it yet. table: its name in the configuration, which also gives
    aliases, adapters (names of LoRA adapters) and whether a chat template is set (has_template). variants: names of its
    variants. variant_adapters: LoRA adapters of variants, by their names. projectors: files that may be its projector,
    the likeliest first.
    """

    name: str
    path: Path
    size_bytes: int
    modified_ns: int
    origin: str = "models folder"
    record: ModelRecord | None = None
    table: str | None = None
    aliases: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    variant_adapters: tuple[tuple[str, Path], ...] = ()
    projectors: tuple[Path, ...] = ()
    has_template: bool = False

    @property
    def all_aliases(self) -> tuple[str, ...]:
        """The configured ones, then those from the pull or import."""
        recorded = self.record.aliases if self.record is not None else ()
        return tuple(dict.fromkeys((*self.aliases, *recorded)))


class DefaultModel(msgspec.Struct, frozen=True):
    """The model of requests that name none. reason: for people. entry: None if there is no model. is_expected: it is
    configured, or no other model is there, so that it is worth loading before the first request."""

    entry: ModelEntry | None
    reason: str
    is_expected: bool = False


_MAX_VARIANTS: Final = 1_000


class VariantIndex:
    """The named variants of one models folder. Thread-safe; every method blocks briefly on the disk."""

    def __init__(self, models_dir: Path) -> None:
        folder = models_dir / STATE_FOLDER / "variants"
        self._files = RecordFiles(Variant, "a variant of a model", folder, 4 << 20, mode=0o600)
        self._lock = threading.Lock()
        self._stamp: int | None = None
        self._known: dict[str, Variant] = {}

    def all(self) -> tuple[Variant, ...]:
        """Variants by name. Reads the files again if one was added, replaced or removed. Raises Unavailable."""
        return tuple(sorted(self._by_key().values(), key=lambda variant: variant.name))

    def _by_key(self) -> Mapping[str, Variant]:
        """A mapping that is replaced, never changed."""
        try:
            stamp = self._files.folder.stat().st_mtime_ns
        except OSError:
            return {}
        with self._lock:
            if stamp != self._stamp:
                try:
                    paths = sorted(entry.path for entry in os.scandir(self._files.folder))[:_MAX_VARIANTS]
                except OSError as error:
                    raise_if_exhausted(error)
                    raise
                read = (self._files.read(path) for path in paths if path.endswith(".json"))
                self._known = {_variant_key(variant.name): variant for variant in read if variant is not None}
                self._stamp = stamp
            return self._known

    def finder(self) -> Callable[[str], Variant | None]:
        """A `get` for many names: the folder is looked at once."""
        known = self._by_key()
        return lambda name: known.get(_variant_key(name))

    def get(self, name: str) -> Variant | None:
        """Ignores case, and the tag `latest`."""
        return self.finder()(name)

    def put(self, variant: Variant) -> None:
        """Write a variant, replacing an older one of that name atomically. Raises OSError."""
        self._files.put(_variant_key(variant.name), variant)
        with self._lock:
            self._stamp = None

    def remove(self, name: str) -> None:
        """Delete a variant, if there is one of this name, and its adapter, if no other one has it. Raises OSError."""
        removed = self.get(name)
        self._files.remove(_variant_key(name))
        with self._lock:
            self._stamp = None
        if removed is not None and removed.adapter not in {None, *(each.adapter for each in self.all())}:
            self.adapter_path(str(removed.adapter)).unlink(missing_ok=True)

    def adapter_path(self, sha256: str) -> Path:
        """Where the LoRA adapter with this digest is kept."""
        return self._files.folder.parent / "adapters" / f"{sha256}.gguf"


def is_named(variant: str, name: str) -> bool:
    """Whether a name means a variant: case does not count, nor the tag `latest`."""
    return _variant_key(variant) == _variant_key(name)


def _variant_key(name: str) -> str:
    return without_latest_tag(name).casefold()
