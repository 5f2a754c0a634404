"""Finds the file of a model by its name, among the models folder, the file that --model named, and the built-in one.

A name from a request is only ever compared with names of files that are there: no path is made from it. Listing blocks
on the disk for a few milliseconds; reading a header (once per file and change) for up to some tenths of a second.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from stat import S_ISREG
from typing import Final

from jan_serve.core.listed_model import HeaderFacts
from jan_serve.errors import InvalidRequest, ModelNotFound, SettingsError
from jan_serve.store.configured import ConfiguredEntries
from jan_serve.store.entry import ConfiguredNames, ModelEntry
from jan_serve.store.gguf.facts import facts_of
from jan_serve.store.gguf.model_file import ModelFile, part_number, read_model_file
from jan_serve.store.index import FileRecord, ModelIndex, ModelRecord, Source
from jan_serve.store.names import (
    adapter_matches,
    best_matches,
    deletion_matches,
    exact_matches,
    name_of,
    without_suffix,
)

MAX_NAME_LENGTH: Final = 255
_MAX_DEPTH: Final = 8
_MAX_FILES: Final = 10_000
_MAX_CACHED_HEADERS: Final = 64
_SUFFIX: Final = ".gguf"


@dataclass(frozen=True, slots=True)
class DefaultModel:
    """The model of requests that name none. `reason` is for people; `entry` is None where nothing can be served."""

    entry: ModelEntry | None
    reason: str


class ModelResolver:
    """Name to file. Keeps no list: what is added or removed counts from the next request on. Any thread may ask."""

    def __init__(
        self,
        models_dir: Path,
        *,
        default: str | None = None,
        builtin: tuple[str, Path] | None = None,
        index: ModelIndex | None = None,
        names: Callable[[], Mapping[str, ConfiguredNames]] | None = None,
    ) -> None:
        """`default` is --model: a path of a file, or a name. `builtin`: name and file of the model that ships with us.
        `index`: where sources and aliases come from; without one, files have their names only. `names`: what is
        configured as of now, by a full name of a model; asked for each list.

        Raises ModelNotFound when `default` is neither, SettingsError when it can only be a file and is none.
        """
        self._models_dir = models_dir
        self._builtin = builtin
        self._index = index
        self._configured = ConfiguredEntries(names) if names is not None else None
        self._headers: dict[tuple[str, int, int], ModelFile] = {}
        self._lock = threading.Lock()
        self._named = self._entry_of_path(default) if default is not None else None
        self._default_name = self._named.name if self._named else default
        if default is not None and self._named is None:
            _check_is_no_path(default)
            self.resolve(default)

    def entries(self) -> tuple[ModelEntry, ...]:
        """Every model that can be asked for: what --model named first, then by name, the built-in one last."""
        found: dict[str, ModelEntry] = {}
        if self._named is not None:
            found[self._named.name] = self._named
        for entry in sorted(self._scan(), key=lambda entry: entry.name):
            found.setdefault(entry.name, entry)
        if self._builtin is not None:
            name, path = self._builtin
            built_in = _entry(name, path, origin="built in")
            if built_in is not None:
                found.setdefault(name, built_in)
        entries = tuple(found.values())
        return entries if self._configured is None else self._configured.apply(entries)

    def resolve(self, name: str | None) -> ModelEntry:
        """The model of that name (None: the default one), in the order of `names.best_matches`.

        Raises InvalidRequest for what cannot be a name or fits several models, ModelNotFound for what is not here.
        """
        if name is None:
            return self._resolve_default()
        _check_name(name)
        entries = self.entries()
        return _only(name, best_matches(name, entries), entries)

    def resolve_exact(self, name: str) -> ModelEntry:
        """For what deletes, where another model must never be meant: see `names.deletion_matches`. Raises as `resolve`.

        What a name that several share can mean is listed by file: each of these names one of them.
        """
        _check_name(name)
        entries = self.entries()
        matches = deletion_matches(name, entries)
        if len(matches) > 1:
            raise _ambiguous(name, [f"{entry.name}{_SUFFIX}" for entry in matches])
        return _only(name, matches, entries)

    def choose(self, name: str | None) -> tuple[ModelEntry, str | None]:
        """As `resolve`, where a name may also be `MODEL:ADAPTER` or a LoRA adapter's own: the model and the adapter.

        Raises AdapterNotFound beside.
        """
        if name is None:
            return self._resolve_default(), None
        _check_name(name)
        entries = self.entries()
        if not exact_matches(name, entries):
            adapters = adapter_matches(name, entries)
            if len(adapters) > 1:
                names = ", ".join(f"{entry.name}:{adapter}" for entry, adapter in adapters[:5])
                raise InvalidRequest(
                    f"The adapter `{name}` can be any of: {names}. Use one of these.", param="model"
                )
            if adapters:
                return adapters[0]
        return _only(name, best_matches(name, entries), entries), None

    def default(self) -> DefaultModel:
        """What a request without a model gets, and why. Raises as `resolve` does if --model has gone."""
        if self._default_name is not None:
            return DefaultModel(self.resolve(self._default_name), "as configured")
        entries = self.entries()
        own = [entry for entry in entries if entry.origin != "built in"]
        if len(own) == 1:
            return DefaultModel(own[0], "the only model in the models folder")
        built_in = next((entry for entry in entries if entry.origin == "built in"), None)
        if own:
            return DefaultModel(
                built_in, f"{len(own)} models are in the models folder and none is configured"
            )
        return DefaultModel(built_in, "the models folder has no model")

    def model_file(self, path: Path, name: str) -> ModelFile:
        """The checked header facts of a model file that is served as `name`. Blocks on the disk.

        Raises InvalidModel, and ModelNotFound when the file has gone.
        """
        try:
            status = path.stat()
        except OSError:
            raise ModelNotFound(name) from None
        key = (str(path), status.st_size, status.st_mtime_ns)
        with self._lock:
            known = self._headers.get(key)
        if known is None:
            known = read_model_file(path)
            with self._lock:
                while len(self._headers) >= _MAX_CACHED_HEADERS:
                    self._headers.pop(next(iter(self._headers)))
                self._headers[key] = known
        return known

    def facts(self, entry: ModelEntry) -> HeaderFacts:
        """What a list shows of a model: from the index, else from its header, which the index then keeps.

        Raises InvalidModel, and ModelNotFound when the file has gone.
        """
        if entry.record is not None and entry.record.facts is not None:
            return entry.record.facts
        facts = facts_of(self.model_file(entry.path, entry.name))
        if self._index is not None and entry.origin == "models folder" and entry.record is None:
            # What cannot be written down is read again next time.
            with contextlib.suppress(OSError):
                self._index.put(_record_by_hand(entry, facts, self._models_dir))
        return facts

    def _resolve_default(self) -> ModelEntry:
        chosen = self.default()
        if chosen.entry is None:
            raise ModelNotFound("default", tuple(entry.name for entry in self.entries()[:3]))
        return chosen.entry

    def _entry_of_path(self, text: str) -> ModelEntry | None:
        """--model as a file: what exists is taken, with its name in the folder or, elsewhere, its own stem."""
        path = Path(text).expanduser().absolute()
        if path.suffix.lower() != _SUFFIX or not path.is_file():
            return None
        inside = path.is_relative_to(self._models_dir)
        name = name_of(path.relative_to(self._models_dir) if inside else Path(path.name))
        return _entry(name, path, origin="models folder" if inside else "--model")

    def _scan(self) -> Iterator[ModelEntry]:
        """GGUF files below the folder. Links to files are taken (only the owner can link), links to folders are not."""
        count = 0
        records = self._index.records() if self._index is not None else {}
        for folder, subfolders, files in os.walk(self._models_dir):
            relative = Path(folder).relative_to(self._models_dir)
            keep = len(relative.parts) < _MAX_DEPTH
            subfolders[:] = sorted(name for name in subfolders if keep and not name.startswith("."))
            for file in sorted(files):
                if not _is_model_name(file):
                    continue
                count += 1
                if count > _MAX_FILES:
                    return
                entry = _entry(name_of(relative / file), Path(folder, file), origin="models folder")
                if entry is not None:
                    yield _with_record(entry, records.get(entry.name))


def _only(name: str, matches: Sequence[ModelEntry], entries: Sequence[ModelEntry]) -> ModelEntry:
    """The one match. Raises InvalidRequest for several, ModelNotFound with the entries that look like it for none."""
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise _ambiguous(name, [entry.name for entry in matches])
    known = [entry.name for entry in entries]
    raise ModelNotFound(name, tuple(_near(without_suffix(name), known)))


def _ambiguous(name: str, candidates: Sequence[str]) -> InvalidRequest:
    more = f" and {len(candidates) - 5} more" if len(candidates) > 5 else ""
    return InvalidRequest(
        f"The model `{name}` can be any of: {', '.join(candidates[:5])}{more}. Use one of these.",
        param="model",
    )


def _is_model_name(file: str) -> bool:
    """Whether a file of this name can be a model: no projector, no later part of a split model, nothing hidden."""
    if file.startswith(".") or not file.lower().endswith(_SUFFIX) or file.lower().startswith("mmproj"):
        return False
    place = part_number(file)
    return place is None or place[1] == 1


def _entry(name: str, path: Path, *, origin: str) -> ModelEntry | None:
    """None for what is no regular file: a FIFO or a device would block its reader."""
    try:
        status = path.stat()
    except OSError:
        return None
    if not S_ISREG(status.st_mode):
        return None
    return ModelEntry(name, path, status.st_size, status.st_mtime_ns, origin)


def _record_by_hand(entry: ModelEntry, facts: HeaderFacts, models_dir: Path) -> ModelRecord:
    path = entry.path.relative_to(models_dir).as_posix()
    return ModelRecord(
        name=entry.name,
        source=Source(kind="folder"),
        files=(FileRecord(path=path, size_bytes=entry.size_bytes),),
        modified_ns=entry.modified_ns,
        added_at=time.time(),
        facts=facts,
    )


def _with_record(entry: ModelEntry, record: ModelRecord | None) -> ModelEntry:
    if record is None or not record.describes(entry.size_bytes, entry.modified_ns):
        return entry
    return replace(entry, record=record)


def _check_name(name: str) -> None:
    """Refuse what is not a name at all. Safety does not rest on this: see the module's first lines."""
    reason = None
    if not name:
        reason = "is empty"
    elif len(name) > MAX_NAME_LENGTH:
        raise InvalidRequest(f"The model name is longer than {MAX_NAME_LENGTH} characters.", param="model")
    elif not name.isprintable():
        reason = "holds characters that cannot be printed"
    elif "\\" in name or name.startswith(("/", "~")) or name[1:2] == ":":
        reason = "is a path; models are named as in the models folder"
    elif any(part in ("", ".", "..") for part in name.split("/")):
        reason = "has an empty, `.` or `..` part"
    if reason is not None:
        raise InvalidRequest(f"The model name {name!a} {reason}.", param="model")


def _check_is_no_path(text: str) -> None:
    """Of --model that was not taken for a file: what is written as a path is meant as one."""
    if not (text.startswith(("/", "~", "./", "../")) or "\\" in text or text[1:2] == ":"):
        return
    path = Path(text).expanduser()
    if path.is_file():
        raise SettingsError(f"model: {text} is no GGUF file: its name does not end in {_SUFFIX}")
    raise SettingsError(f"model: {text} is no file" if path.exists() else f"model: there is no file {text}")


def _near(name: str, known: list[str]) -> list[str]:
    by_fold = {item.casefold(): item for item in known}
    close = difflib.get_close_matches(name.casefold(), list(by_fold), n=3)
    parts = [fold for fold in by_fold if name.casefold() in fold and fold not in close]
    return [by_fold[fold] for fold in (*close, *parts)][:3]
