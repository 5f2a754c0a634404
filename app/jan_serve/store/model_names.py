"""Finds the models that a name means, and that of requests without a name; gives models their configured names."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any, Final

import msgspec

from jan_serve.core.latest_tag import has_latest_tag, without_latest_tag
from jan_serve.core.models import HeaderFacts
from jan_serve.core.split_names import PartName
from jan_serve.errors import AdapterNotFound, InvalidModel, ModelNotFound
from jan_serve.store.files import raise_if_exhausted
from jan_serve.store.gguf.quantisation import quantisation_of
from jan_serve.store.index import STATE_FOLDER, DefaultModel, ModelEntry

MIN_PREFIX_LENGTH: Final = 3
_SUFFIX: Final = ".gguf"
_HUB_PREFIXES: Final = ("hf.co/", "huggingface.co/")


def best_matches(name: str, entries: Sequence[ModelEntry]) -> list[ModelEntry]:
    """The entries that `name` matches by the first rule that matches any; more than one is ambiguous. The rules, each
    first case-sensitive and then not: the canonical name; the file name; an alias; the repository, alone or with
    `:QUANT`; a prefix of the canonical or file name."""
    wanted = without_suffix(_without_hub(without_latest_tag(name)))
    return exact_matches(name, entries) or _with_prefix(wanted.casefold(), entries)


def exact_matches(name: str, entries: Sequence[ModelEntry]) -> list[ModelEntry]:
    """The matches of `best_matches`, without prefixes."""
    found = _exact_matches(without_suffix(_without_hub(name)), entries)
    if not found and has_latest_tag(name):
        return exact_matches(without_latest_tag(name), entries)
    return found


def _exact_matches(wanted: str, entries: Sequence[ModelEntry]) -> list[ModelEntry]:
    for names_of in (_canonical, _variants, _file_stem, _aliases, _repo_names):
        for fold in (str, str.casefold):
            name = fold(wanted)
            matches = [entry for entry in entries if any(fold(known) == name for known in names_of(entry))]
            if matches:
                return matches
    return []


def deletion_matches(name: str, entries: Sequence[ModelEntry]) -> list[ModelEntry]:
    """The entries that deleting `name` could mean; more than one is rejected. All rules except prefixes apply at
    once: if two models share a name, a repeated call must not delete the second one. With `.gguf`, the name is the
    exact path of one file in the models folder."""
    wanted = _without_hub(name)
    if without_suffix(wanted) != wanted:
        return [entry for entry in entries if entry.name in (wanted, without_suffix(wanted))]
    folded = wanted.casefold()
    rules = (_canonical, _file_stem, _aliases, _repo_names)
    names = [[known.casefold() for rule in rules for known in rule(entry)] for entry in entries]
    found = [entry for entry, own in zip(entries, names, strict=True) if folded in own]
    if not found and has_latest_tag(name):
        return deletion_matches(without_latest_tag(name), entries)
    return found


def adapter_matches(name: str, entries: Sequence[ModelEntry]) -> list[tuple[ModelEntry, str]]:
    """`MODEL:ADAPTER` or the adapter's name. Raises AdapterNotFound if MODEL has adapters, but not this one."""
    model, colon, adapter = name.rpartition(":")
    owners = [entry for entry in exact_matches(model, entries) if entry.adapters] if colon and model else []
    found = _with_adapter(adapter, owners) or _with_adapter(name, entries)
    if owners and not found:
        raise AdapterNotFound(adapter, owners[0].name, owners[0].adapters)
    return found


def _with_adapter(name: str, entries: Sequence[ModelEntry]) -> list[tuple[ModelEntry, str]]:
    pairs = [(entry, adapter) for entry in entries for adapter in entry.adapters]
    return [pair for pair in pairs if pair[1].casefold() == name.casefold()]


def _with_prefix(prefix: str, entries: Sequence[ModelEntry]) -> list[ModelEntry]:
    if len(prefix) < MIN_PREFIX_LENGTH:
        return []
    names = [(entry.name.casefold(), _file_stem(entry)[0].casefold()) for entry in entries]
    pairs = zip(entries, names, strict=True)
    return [entry for entry, own in pairs if any(name.startswith(prefix) for name in own)]


def without_suffix(name: str) -> str:
    """`name` without `.gguf`, in any case."""
    return name[: -len(_SUFFIX)] if name.lower().endswith(_SUFFIX) and len(name) > len(_SUFFIX) else name


def canonical_name(path: PurePath) -> str:
    """The canonical name of a model. path: of its first file, relative to the models folder."""
    return path.with_name(stem_of(path.name)).as_posix()


def stem_of(file: str) -> str:
    """The last part of the canonical name of a model whose first file has this name."""
    part = PartName.parse(file)
    return part.stem if part else without_suffix(file)


def repo_of(entry: ModelEntry) -> str | None:
    """`org/repo` of a model: from its record, else its first two folders."""
    if entry.record is not None and entry.record.source.kind in ("hub", "hf-cache"):
        return entry.record.source.name
    parts = entry.name.split("/")
    return "/".join(parts[:2]) if len(parts) >= 3 else None


def _without_hub(name: str) -> str:
    for prefix in _HUB_PREFIXES:
        if name.lower().startswith(prefix):
            return name[len(prefix) :]
    return name


def _canonical(entry: ModelEntry) -> tuple[str, ...]:
    return (entry.name,)


def _file_stem(entry: ModelEntry) -> tuple[str, ...]:
    return (entry.name.rpartition("/")[2],)


def _aliases(entry: ModelEntry) -> tuple[str, ...]:
    aliases = entry.all_aliases
    return (*aliases, *(without_latest_tag(alias) for alias in aliases if has_latest_tag(alias)))


def _variants(entry: ModelEntry) -> tuple[str, ...]:
    return tuple(without_latest_tag(name) for name in entry.variants)


def _repo_names(entry: ModelEntry) -> tuple[str, ...]:
    repo = repo_of(entry)
    if repo is None:
        return ()
    names = (repo, repo.rpartition("/")[2])
    label = quantisation_of(entry.name.rpartition("/")[2])
    return names if label is None else (*names, *(f"{name}:{label}" for name in names))


NO_PROJECTOR: Final = "none"


class ConfiguredNames(msgspec.Struct, frozen=True):
    """Configured names of a model. adapters: names of its LoRA adapters. adapter_files: never listed as models.
    projector: a file, "none", or None for the one that is found. has_template: a chat template is set."""

    aliases: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    adapter_files: tuple[Path, ...] = ()
    projector: str | None = None
    has_template: bool = False


Names = Mapping[str, ConfiguredNames]


class ConfiguredEntries:
    """Caches the table of each model until names or models change: matching takes some milliseconds. Thread-safe."""

    def __init__(self, names: Callable[[], Names]) -> None:
        """names: returns the current configuration, by full model name; called at each use."""
        self._names = names
        self._known: tuple[Any, dict[str, str]] | None = None

    def apply(self, entries: Sequence[ModelEntry]) -> tuple[ModelEntry, ...]:
        """The entries with their configuration, without adapter files."""
        names = dict(self._names())
        if not names:
            return tuple(entries)
        adapters = {os.path.normpath(path) for each in names.values() for path in each.adapter_files}
        if adapters:
            entries = [entry for entry in entries if os.path.normpath(entry.path) not in adapters]
        key = (names, [(entry.name, entry.record) for entry in entries])
        known = self._known
        if known is None or known[0] != key:
            known = self._known = (key, tables_of(entries, names))
        return tuple(_with_table(entry, known[1].get(entry.name), names) for entry in entries)


def tables_of(entries: Sequence[ModelEntry], names: Names) -> dict[str, str]:
    """The configured name of each model; its canonical name takes precedence."""
    found: dict[str, str] = {}
    for table in names:
        for entry in exact_matches(table, entries):
            if entry.name == table:
                found[entry.name] = table
            else:
                found.setdefault(entry.name, table)
    return found


def _with_table(entry: ModelEntry, table: str | None, names: Names) -> ModelEntry:
    if table is None:
        return entry
    own, projectors = names[table], entry.projectors
    if own.projector is not None:
        projectors = () if own.projector == NO_PROJECTOR else (Path(own.projector),)
    return msgspec.structs.replace(
        entry,
        table=table,
        aliases=own.aliases,
        adapters=own.adapters,
        has_template=own.has_template,
        projectors=projectors,
    )


_MAX_BYTES: Final = 4096


class ChosenModel:
    """The default of one models folder, as a user chose it for this and later servers. Methods block on the disk."""

    def __init__(self, models_dir: Path, file: str = "default-model") -> None:
        self._file = models_dir / STATE_FOLDER / file

    def name(self) -> str | None:
        """Its canonical name. None if there is none; the model may be gone. Raises Unavailable."""
        try:
            with self._file.open("rb") as file:
                return os.fsdecode(file.read(_MAX_BYTES))
        except OSError as error:
            raise_if_exhausted(error)  # else the server would have another default for as long as it runs
            return None

    def choose(self, name: str | None) -> None:
        """None leaves the choice to the program. Raises OSError."""
        if name is None:
            self._file.unlink(missing_ok=True)
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_bytes(os.fsencode(name))


class LastModel:
    """The model of one models folder that was loaded last to write text before this process asked. What the process
    loads itself counts from the next start: requests without a name get the same model as long as a server runs. Each
    method blocks briefly on the disk."""

    def __init__(self, models_dir: Path) -> None:
        self._kept = ChosenModel(models_dir, "last-model")
        self._noted: str | None = None

    @cached_property
    def name(self) -> str | None:
        """Its canonical name. None if there is none; the model may be gone."""
        return self._kept.name()

    def note(self, name: str) -> None:
        """Keep the name for the next start, where the folder can be written."""
        if name != (self._noted or self.name):
            with contextlib.suppress(OSError):
                # A hint, written with every change of models: a torn one names no model, and chooses nothing.
                self._kept.choose(name)
                self._noted = name


_CHATS, _CONTINUES, _POOLS = range(3)


def _kind(facts: HeaderFacts) -> int:
    if not facts.writes_text:
        return _POOLS
    return _CONTINUES if facts.is_base else _CHATS


def likeliest(
    entries: Sequence[ModelEntry], last: str | None, facts_of: Callable[[ModelEntry], HeaderFacts]
) -> DefaultModel | None:
    """A model that chats, else one that continues text, else any; of these the one used last, else the newest file.
    last: name of the model used last. facts_of: reads a header that the index lacks, and raises InvalidModel or
    ModelNotFound; called as often as it takes. None if no model can be served."""
    found: ModelEntry | None = None
    kind, n_servable = _POOLS + 1, 0
    for entry in sorted(entries, key=lambda entry: (entry.name != last, -entry.modified_ns, entry.name)):
        try:
            own_kind = _kind(facts_of(entry))
        except (InvalidModel, ModelNotFound):
            continue
        n_servable += 1
        if own_kind < kind:
            found, kind = entry, own_kind
        if kind == _CHATS and (n_servable > 1 or entry.name == last):
            break
    if found is None:
        return None
    if n_servable == 1 and found.name != last:
        return DefaultModel(found, "the only model in the models folder that can be served")
    reason = "used last" if found.name == last else f"the newest of {len(entries)} models"
    return DefaultModel(found, reason if kind == _CHATS else f"{reason}; none of them chats")
