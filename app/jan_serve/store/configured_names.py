"""Applies configured tables, aliases and LoRA adapters to the models of the store."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from jan_serve.store.model_entry import ModelEntry
from jan_serve.store.name_matching import exact_matches

NO_PROJECTOR: Final = "none"


class ConfiguredNames(msgspec.Struct, frozen=True):
    """Configured names of a model. adapters: names of its LoRA adapters. adapter_files: never listed as models.

    projector: a file, "none", or None for the one that is found. has_template: a chat template is set.
    """

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
    own = names[table]
    found = msgspec.structs.replace(
        entry, table=table, aliases=own.aliases, adapters=own.adapters, has_template=own.has_template
    )
    if own.projector is None:
        return found
    return msgspec.structs.replace(
        found, projectors=() if own.projector == NO_PROJECTOR else (Path(own.projector),)
    )
