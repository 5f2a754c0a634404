"""Resolves model names to files: in the models folder, --model, and the built-in model.

Names from requests are only compared with existing files. Listing blocks on the disk for some milliseconds, reading a
header (once per file and change) for up to some tenths of a second.
"""

from __future__ import annotations

import contextlib
import difflib
import itertools
import logging
import operator
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from jan_serve.core.models import HeaderFacts, Variant
from jan_serve.errors import InvalidModel, InvalidRequest, ModelNotFound, SettingsError
from jan_serve.store.file_names import projectors_among
from jan_serve.store.files import file_stamp, user_path, writing_to
from jan_serve.store.gguf.model_file import ModelFile, ProjectorFile, read_model_file, read_projector
from jan_serve.store.index import (
    DefaultModel,
    FileRecord,
    ModelEntry,
    ModelIndex,
    ModelRecord,
    Source,
    VariantIndex,
    is_named,
)
from jan_serve.store.model_folder import ModelFolder, entry_of_file
from jan_serve.store.model_names import (
    ChosenModel,
    ConfiguredEntries,
    ConfiguredNames,
    LastModel,
    adapter_matches,
    best_matches,
    canonical_name,
    deletion_matches,
    exact_matches,
    likeliest,
    without_suffix,
)

MAX_NAME_LENGTH: Final = 255
_MAX_CACHED_HEADERS: Final = 64
_MAX_CACHED_PROJECTORS: Final = 10_000
"""A folder may have this many files, and lists ask for all."""
_SUFFIX: Final = ".gguf"

_log: Final = logging.getLogger(__name__)

_name_of: Final = operator.attrgetter("name")
_FileKey = tuple[str, int, int]
"""Path, time of the last change and size."""


class ModelResolver:
    """Keeps no list: added and removed files count from the next request. Thread-safe."""

    def __init__(
        self,
        models_dir: Path,
        *,
        default: str | None = None,
        builtin: tuple[str, Path] | None = None,
        index: ModelIndex | None = None,
        names: Callable[[], Mapping[str, ConfiguredNames]] | None = None,
        thinks: Callable[[str], bool] | None = None,
        can_pull: Callable[[str], bool] | None = None,
    ) -> None:
        """default: --model, a path or a name. builtin: name and file of the shipped model. index: gives sources and
        aliases; without it, models have only their names. names: returns the current configuration, by full model name;
        called for each list. thinks: whether a chat template writes thoughts; without it, facts do not say so.
        can_pull: whether the catalogue has a name; asked for unknown ones.

        Raises ModelNotFound if `default` is unknown, SettingsError if it is a path without a GGUF file.
        """
        self._models_dir = models_dir
        self._builtin = builtin
        self._index = index
        self.variants = VariantIndex(models_dir)
        self._thinks = thinks
        self._can_pull = can_pull
        self._configured = ConfiguredEntries(names) if names is not None else None
        self._headers: dict[_FileKey, ModelFile] = {}
        self._projectors: dict[_FileKey, ProjectorFile | None] = {}
        self._faulty: set[_FileKey] = set()
        """Projectors that the last load could not use, as in `_projectors`."""
        self._beside_builtin = _projectors_beside(builtin[1]) if builtin is not None else ()
        self._chosen, self._last = ChosenModel(models_dir), LastModel(models_dir)
        self._folder = ModelFolder(models_dir, index)
        self._calls = itertools.count(1)
        self._scan_lock = threading.Lock()
        self._scanned: tuple[int, tuple[ModelEntry, ...]] = (0, ())
        """Number of the call at which the last scan began, and its result."""
        self._lock = threading.Lock()
        self._named = self.entry_of_path(default) if default is not None else None
        self._default_name = self._named.name if self._named else default
        if default is not None and self._named is None:
            _check_is_no_path(default)
            self.resolve(default)

    def entries(self) -> tuple[ModelEntry, ...]:
        """All models: --model first, then by name, the built-in one last. Scans one at a time: side by side, their
        threads take the interpreter from each other at every file. Calls that wait share the next scan. Raises as the
        scan, but not for another call's."""
        call = next(self._calls)
        with self._scan_lock:
            if self._scanned[0] < call:
                self._scanned = next(self._calls), self._scan_entries()
            return self._scanned[1]

    def _scan_entries(self) -> tuple[ModelEntry, ...]:
        found: dict[str, ModelEntry] = {}
        if self._named is not None:
            found[self._named.name] = self._named
        for entry in sorted(self._folder.entries(), key=_name_of):
            found.setdefault(entry.name, entry)
        if self._builtin is not None:
            name, path = self._builtin
            built_in = entry_of_file(name, path, origin="built in", projectors=self._beside_builtin)
            if built_in is not None:
                found.setdefault(name, built_in)
        entries = tuple(found.values())
        if self._configured is not None:
            entries = self._configured.apply(entries)
        of_model: dict[str, list[Variant]] = {}
        for variant in self.variants.all():
            of_model.setdefault(variant.base, []).append(variant)
        return tuple(
            self._with_variants(entry, of_model[entry.name]) if entry.name in of_model else entry
            for entry in entries
        )

    def _with_variants(self, entry: ModelEntry, variants: Sequence[Variant]) -> ModelEntry:
        adapters = [
            (each.name, self.variants.adapter_path(each.adapter)) for each in variants if each.adapter
        ]
        names = tuple(each.name for each in variants)
        return msgspec.structs.replace(entry, variants=names, variant_adapters=tuple(adapters))

    def resolve(self, name: str | None) -> ModelEntry:
        """By `model_names.best_matches`; None is the default. Raises InvalidRequest, ModelNotFound."""
        if name is None:
            return self._resolve_default()
        check_name(name)
        return self._best(name, self.entries())

    def resolve_exact(self, name: str) -> ModelEntry:
        """The model to delete, see `deletion_matches`. Raises as `resolve`, with unambiguous file names."""
        check_name(name)
        entries = self.entries()
        matches = deletion_matches(name, entries)
        if len(matches) > 1:
            raise _ambiguous(name, [f"{entry.name}{_SUFFIX}" for entry in matches])
        if not matches:
            raise self.unknown(name, entries, can_pull=False)
        return matches[0]

    def resolve_with_adapter(self, name: str | None) -> tuple[ModelEntry, str | None]:
        """`MODEL:ADAPTER`, an adapter's name, or as in `resolve`. Raises as that, and AdapterNotFound."""
        if name is None:
            return self._resolve_default(), None
        check_name(name)
        entries = self.entries()
        if not exact_matches(name, entries):
            adapters = adapter_matches(name, entries)
            if len(adapters) > 1:
                raise _ambiguous(name, [f"{entry.name}:{adapter}" for entry, adapter in adapters], "adapter")
            if adapters:
                return adapters[0]
        entry = self._best(name, entries)
        own = (each for each, _ in entry.variant_adapters if is_named(each, name))
        return entry, next(own, None)

    def default(self) -> DefaultModel:
        """The model of requests that name none. Raises as `resolve` if --model is missing."""
        if self._default_name is not None:
            return DefaultModel(self.resolve(self._default_name), "as configured", is_expected=True)
        entries = self.entries()
        chosen_name = self._chosen.name()
        for entry in entries:
            if entry.name == chosen_name:
                return DefaultModel(entry, "chosen with `jan-serve use`", is_expected=True)
        own = [entry for entry in entries if entry.origin != "built in"]
        if len(own) == 1:
            return DefaultModel(own[0], "the only model in the models folder")
        chosen = likeliest(own, self._last.name, self.effective_facts) if own else None
        if chosen is not None:
            return chosen
        built_in = next((entry for entry in entries if entry.origin == "built in"), None)
        if own:
            reason = f"{len(own)} models are in the models folder and none can be served"
            return DefaultModel(built_in, reason)
        return DefaultModel(built_in, "the models folder has no model", is_expected=built_in is not None)

    def choose_default(self, name: str | None) -> None:
        """Make a model the default, here and in other processes of the folder; None: as if none had been chosen.
        Blocks on the disk. Raises as `resolve`, and StoreError if the folder cannot be written."""
        entry = self.resolve(name) if name is not None else None
        with writing_to(self._models_dir):
            self._chosen.choose(entry.name if entry is not None else None)

    def note_use(self, entry: ModelEntry) -> None:
        """The model was loaded to write text. The built-in one leaves the default to another."""
        if entry.origin == "models folder":
            self._last.note(entry.name)

    def model_file(self, path: Path, name: str) -> ModelFile:
        """From the header of the file of `name`. Blocks on the disk. Raises InvalidModel, ModelNotFound."""
        key = _key(path)
        if key is None:
            raise ModelNotFound(name)
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
        """From the index if it has all, else from the header, for the index. Raises InvalidModel, ModelNotFound."""
        record = entry.record
        if record is not None and self.has_all_facts(record):
            assert record.facts is not None
            return record.facts
        facts = self.model_file(entry.path, entry.name).facts(self._thinks)
        self.keep_facts(entry, facts)
        return facts

    def effective_facts(self, entry: ModelEntry) -> HeaderFacts:
        """The facts, with what the configuration adds. Raises as `facts`."""
        return as_configured(self.facts(entry), entry)

    def keep_facts(self, entry: ModelEntry, facts: HeaderFacts) -> None:
        """Write facts from the model's header to the index, if that has it."""
        if self._index is None or entry.origin != "models folder":
            return
        record = entry.record or ModelRecord(
            name=entry.name,
            source=Source(kind="folder"),
            files=(
                FileRecord(
                    path=entry.path.relative_to(self._models_dir).as_posix(), size_bytes=entry.size_bytes
                ),
            ),
            modified_ns=entry.modified_ns,
            added_at=time.time(),
        )
        # Without a record, the header is read again next time.
        with contextlib.suppress(OSError):
            self._index.add(msgspec.structs.replace(record, facts=facts))

    def has_all_facts(self, record: ModelRecord) -> bool:
        """Whether no header must be read. Those of a download, or of an earlier version, lack some."""
        facts = record.facts
        if facts is None or facts.n_embd is None:
            return False
        return facts.thinks is not None or self._thinks is None

    def projector(self, entry: ModelEntry) -> ProjectorFile | None:
        """The first of the model's possible projectors that fits it, None if none does. Without senses, if the last
        load could not use it. Reads headers, once per file and change. Raises InvalidModel for the model's own,
        ModelNotFound."""
        if not entry.projectors:
            return None
        return self.fitting_projector(entry, self.model_file(entry.path, entry.name).n_embd)

    def fitting_projector(self, entry: ModelEntry, n_embd: int) -> ProjectorFile | None:
        """The projector for embeddings of this length; the model's header is not read. Raises as `projector`."""
        found = (self._projector_file(path) for path in entry.projectors)
        fitting = next((each for each in found if each and each.fits(n_embd)), None)
        if fitting is not None and _key(fitting.path) in self._faulty:
            return msgspec.structs.replace(fitting, senses=())
        return fitting

    def unfitting_projectors(self, entry: ModelEntry, n_embd: int) -> tuple[ProjectorFile, ...]:
        """Those of the model's possible projectors that are for models of another width."""
        found = (self._projector_file(path) for path in entry.projectors)
        return tuple(each for each in found if each is not None and not each.fits(n_embd))

    def note_projector(self, path: Path, fault: str) -> None:
        """fault: why a load did not use it, so that lists do not say that the model sees; empty if it did."""
        key = _key(path)
        if key is not None:
            (self._faulty.add if fault else self._faulty.discard)(key)

    def _projector_file(self, path: Path) -> ProjectorFile | None:
        """None if it is missing or no projector."""
        key = _key(path)
        if key is None:
            return None
        if key not in self._projectors:
            found = None
            try:
                found = read_projector(path)
            except InvalidModel as error:
                _log.warning("a projector is not used: %s", error.message)
            with self._lock:
                if len(self._projectors) >= _MAX_CACHED_PROJECTORS:
                    self._projectors.clear()
                self._projectors[key] = found
        return self._projectors.get(key)

    def _resolve_default(self) -> ModelEntry:
        chosen = self.default()
        if chosen.entry is None:
            raise ModelNotFound("default", tuple(entry.name for entry in self.entries()[:3]))
        return chosen.entry

    def _best(self, name: str, entries: Sequence[ModelEntry]) -> ModelEntry:
        """The only match. Raises InvalidRequest for several, ModelNotFound with similar names for none."""
        matches = best_matches(name, entries)
        if len(matches) > 1:
            raise _ambiguous(name, [entry.name for entry in matches])
        if not matches:
            raise self.unknown(name, entries)
        return matches[0]

    def unknown(
        self, name: str, entries: Sequence[ModelEntry] | None = None, *, can_pull: bool = True
    ) -> ModelNotFound:
        """The error for a name that no model has, with similar names. can_pull: and whether the catalogue has it."""
        known = [entry.name for entry in (self.entries() if entries is None else entries)]
        can_pull = can_pull and self._can_pull is not None and self._can_pull(name)
        return ModelNotFound(name, tuple(_near(without_suffix(name), known)), can_pull=can_pull)

    def entry_of_path(self, text: str) -> ModelEntry | None:
        """--model as an existing file, named by its path in the models folder or, elsewhere, its stem."""
        path = user_path(text).absolute()
        if path.suffix.lower() != _SUFFIX or not os.path.isfile(path):
            return None
        inside = path.is_relative_to(self._models_dir)
        name = canonical_name(path.relative_to(self._models_dir) if inside else Path(path.name))
        origin = "models folder" if inside else "--model"
        return entry_of_file(name, path, origin=origin, projectors=_projectors_beside(path))


def _key(path: Path) -> _FileKey | None:
    """None if the file is missing."""
    stamp = file_stamp(path)
    return None if stamp is None else (str(path), *stamp)


def as_configured(facts: HeaderFacts, entry: ModelEntry) -> HeaderFacts:
    """A configured chat template counts as the model's own."""
    if not entry.has_template or facts.has_chat_template:
        return facts
    return msgspec.structs.replace(facts, has_chat_template=True)


def _ambiguous(name: str, candidates: Sequence[str], what: str = "model") -> InvalidRequest:
    more = f" and {len(candidates) - 5} more" if len(candidates) > 5 else ""
    known = ", ".join(candidates[:5])
    return InvalidRequest(
        f"The {what} `{name}` can be any of: {known}{more}. Use one of these.", param="model"
    )


def _projectors_beside(path: Path) -> tuple[Path, ...]:
    try:
        files = os.listdir(path.parent)
    except OSError:
        return ()
    return tuple(map(path.with_name, projectors_among(files)(path.name)))


def check_name(name: str) -> None:
    """Raises InvalidRequest for an invalid name. Safety does not depend on this check: names never become paths."""
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
    else:
        return
    raise InvalidRequest(f"The model name {name!a} {reason}.", param="model")


def _check_is_no_path(text: str) -> None:
    """Raises SettingsError if --model, which is not a GGUF file, is written as a path."""
    if not (text.startswith(("/", "~", "./", "../")) or "\\" in text or text[1:2] == ":"):
        return
    path = user_path(text)
    if os.path.isfile(path):
        raise SettingsError(f"model: {text} is no GGUF file: its name does not end in {_SUFFIX}")
    wrong = f"{text} is no file" if os.path.exists(path) else f"there is no file {text}"
    raise SettingsError(f"model: {wrong}")


def _near(name: str, known: list[str]) -> list[str]:
    by_fold, folded = {item.casefold(): item for item in known}, name.casefold()
    close = difflib.get_close_matches(folded, list(by_fold), n=3)
    parts = (fold for fold in by_fold if folded in fold)
    return [by_fold[fold] for fold in dict.fromkeys((*close, *parts))][:3]
