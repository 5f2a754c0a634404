"""Lists the models in the models folder with their records, and deletes a model with its record and empty folders."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from typing import Final

import msgspec

from jan_serve.core.split_names import PartName
from jan_serve.errors import InvalidRequest
from jan_serve.store.file_names import is_projector_name, projectors_among
from jan_serve.store.files import raise_if_exhausted, writing_to
from jan_serve.store.gguf.model_file import is_projector_file
from jan_serve.store.index import ModelEntry, ModelIndex, ModelRecord
from jan_serve.store.measurements import CalibrationIndex
from jan_serve.store.model_names import stem_of

_MAX_DEPTH: Final = 8
_MAX_FILES: Final = 10_000
_SUFFIX: Final = ".gguf"

_log: Final = logging.getLogger("jan_serve.store")

_FileKey = tuple[int, int, int, tuple[str, ...], ModelRecord | None]
"""Mode, bytes, time of the last change, projectors beside the file and its record: what its entry is made of."""

_ModelFile = tuple[str, str, tuple[str, ...]]
"""Path, canonical name, and the names of the projectors that may be its own."""

_Listing = tuple[list[str], list[_ModelFile]]
"""The files of a folder, in the order of the disk, and the models among them."""


class ModelFolder:
    """Knows the files of the last scan. Thread-safe; blocks on the disk. index: None if models have only names."""

    def __init__(self, models_dir: Path, index: ModelIndex | None) -> None:
        self._models_dir = models_dir
        self._index = index
        self._scanned: dict[str, tuple[_FileKey, ModelEntry | None]] = {}
        """Entries by path. None: a projector whose name does not say so."""
        self._unmarked: frozenset[str] = frozenset()
        """The paths of such projectors."""
        self._listings: dict[str, _Listing] = {}
        self._reported: set[str] = set()

    def entries(self) -> list[ModelEntry]:
        """GGUF files below the folder. Follows links to files (only the owner can create them), not to folders. Most
        files are as before: these cost a stat each, and have the same entries."""
        found = self._scan()
        unmarked = frozenset(path for path, (_, entry) in found.items() if entry is None)
        if unmarked != self._unmarked:
            self._unmarked = unmarked
            self._listings.clear()
            found = self._scan()
        return [entry for _, entry in found.values() if entry is not None]

    def _scan(self) -> Mapping[str, tuple[_FileKey, ModelEntry | None]]:
        records = self._index.records() if self._index is not None else {}
        known, found = self._scanned, dict[str, tuple[_FileKey, ModelEntry | None]]()
        listings, self._listings = self._listings, {}
        files = self._below(str(self._models_dir), 0, listings)
        for path, name, projectors in itertools.islice(files, _MAX_FILES):
            try:
                status = os.stat(path)
            except OSError:
                continue
            before = known.get(path)
            record = records.get(name)
            key = status.st_mode, status.st_size, status.st_mtime_ns, projectors, record
            if before is None or before[0] != key:
                beside = tuple(Path(path).with_name(each) for each in projectors)
                entry = entry_of_file(name, Path(path), origin="models folder", projectors=beside)
                if entry is None:
                    continue
                entry = self._with_record(entry, record)
                # A file with a record was read before.
                before = key, None if entry.record is None and is_projector_file(entry.path) else entry
            found[path] = before
        self._scanned = found
        return found

    def _below(self, folder: str, depth: int, known: Mapping[str, _Listing]) -> Iterator[_ModelFile]:
        """known: listings of the last scan. Names of files are looked at only in folders where they changed."""
        files: list[str] = []
        subfolders: list[str] = []
        try:
            with os.scandir(folder) as found:
                for each in found:
                    (subfolders if each.is_dir(follow_symlinks=False) else files).append(each.name)
        except OSError as error:
            raise_if_exhausted(error)
            return
        listing = known.get(folder)
        if listing is None or listing[0] != files:
            listing = files, self._among(folder, files)
        self._listings[folder] = listing
        yield from listing[1]
        if depth < _MAX_DEPTH:
            for name in sorted(subfolders):
                if not name.startswith(".") and self._is_usable(folder, name):
                    yield from self._below(os.path.join(folder, name), depth + 1, known)

    def _among(self, folder: str, files: list[str]) -> list[_ModelFile]:
        """The model files of a folder with these files."""
        relative = Path(folder).relative_to(self._models_dir)
        prefix = "".join(f"{part}/" for part in relative.parts)
        models = [file for file in files if file.lower().endswith(_SUFFIX) and self._is_usable(folder, file)]
        projectors_of = projectors_among(
            models, [file for file in models if os.path.join(folder, file) in self._unmarked]
        )
        return [
            (os.path.join(folder, file), prefix + stem_of(file), projectors_of(file))
            for file in sorted(models)
            if _is_model_name(file)
        ]

    def _is_usable(self, folder: str, name: str) -> bool:
        """Whether the name of a file or folder is UTF-8, as JSON requires. Logs another one, once."""
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:
            path = os.path.join(folder, name)
            if path not in self._reported:
                self._reported.add(path)
                shown = os.path.relpath(path, self._models_dir).encode("utf-8", "backslashreplace").decode()
                _log.warning("a file or folder is skipped: its name is not UTF-8", extra={"file": shown})
            return False
        return True

    def _with_record(self, entry: ModelEntry, record: ModelRecord | None) -> ModelEntry:
        if record is None or not record.describes(entry.size_bytes, entry.modified_ns):
            return entry
        own = () if record.projector is None else (self._models_dir / record.projector.path,)
        projectors = tuple(dict.fromkeys((*own, *entry.projectors)))
        return msgspec.structs.replace(entry, record=record, projectors=projectors)


def _is_model_name(file: str) -> bool:
    """Excludes projectors, later parts of split models and hidden files."""
    part = PartName.parse(file)
    return not (file.startswith(".") or is_projector_name(file)) and (part is None or part.number == 1)


def entry_of_file(
    name: str, path: Path, *, origin: str, projectors: tuple[Path, ...] = ()
) -> ModelEntry | None:
    """None unless it is a regular file: a FIFO or a device would block its reader."""
    try:
        status = path.stat()
    except OSError:
        return None
    if not S_ISREG(status.st_mode):
        return None
    return ModelEntry(name, path, status.st_size, status.st_mtime_ns, origin, projectors=projectors)


class Removed(msgspec.Struct, frozen=True):
    """n_freed: freed bytes of disk space; deleting a link frees none."""

    name: str
    paths: tuple[Path, ...]
    n_freed: int


def is_own_file(entry: ModelEntry) -> bool:
    """Whether jan-serve added the model (by pull or import), not the user."""
    return entry.record is not None and entry.record.source.kind != "folder"


def check_removable(entry: ModelEntry, models_dir: Path) -> None:
    """Raises InvalidRequest for a model outside the models folder: the built-in one, or --model."""
    if entry.origin != "models folder" or not entry.path.is_relative_to(models_dir):
        own = entry.origin == "built in"
        where = "ships with jan-serve" if own else f"is not in the models folder {models_dir}"
        raise InvalidRequest(f"The model `{entry.name}` {where}; it is not removed.", param="model")


def remove_model(entry: ModelEntry, models_dir: Path, index: ModelIndex) -> Removed:
    """Raises InvalidRequest for a model outside the models folder, StoreError if it cannot be deleted."""
    check_removable(entry, models_dir)
    paths = [path for path in _paths(entry, models_dir, index) if os.path.lexists(path)]
    n_freed = 0
    with writing_to(models_dir):
        # Delete the first file first: without it, remaining files are not listed as a model.
        for path in paths:
            status = path.lstat()
            path.unlink()
            if S_ISREG(status.st_mode) and status.st_nlink == 1:
                n_freed += status.st_size
        index.remove(entry.name)
        CalibrationIndex(models_dir).remove(entry.name)
        for path in paths:
            _remove_empty(path.parent, models_dir)
    return Removed(entry.name, tuple(paths), n_freed)


def _paths(entry: ModelEntry, models_dir: Path, index: ModelIndex) -> list[Path]:
    """The files of the model, the first one first."""
    paths = [entry.path, *_later_parts(entry.path)]
    if entry.record is None:
        return paths
    others = (record for name, record in index.records().items() if name != entry.name)
    used = {file.path for other in others for file in other.all_files}
    for file in entry.record.all_files:
        path = models_dir.joinpath(*PurePosixPath(file.path).parts)
        # Records are untrusted: their paths must be inside the folder, without links.
        if file.path not in used and path not in paths and _is_inside(path, models_dir):
            paths.append(path)
    return paths


def _later_parts(first: Path) -> list[Path]:
    name = PartName.parse(first.name)
    if name is None:
        return []
    return [
        path
        for path in first.parent.iterdir()
        if (part := PartName.parse(path.name)) is not None
        and part.number > 1
        and (part.stem, part.count) == (name.stem, name.count)
    ]


def _is_inside(path: Path, models_dir: Path) -> bool:
    if ".." in path.parts or not path.is_relative_to(models_dir):
        return False
    return path.parent.resolve() == models_dir.resolve() / path.parent.relative_to(models_dir)


def _remove_empty(folder: Path, models_dir: Path) -> None:
    """Remove an empty folder and parents that become empty, except the models folder."""
    while folder != models_dir and folder.is_relative_to(models_dir):
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent
