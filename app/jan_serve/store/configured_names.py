"""What a configuration says of names, put on the models that are here: tables, aliases, LoRA adapters."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jan_serve.store.model_entry import ModelEntry
from jan_serve.store.name_matching import exact_matches


@dataclass(frozen=True, slots=True)
class ConfiguredNames:
    """What a configuration says of the names of a model. adapters: LoRA adapters that it is loaded with, whose files,
    where they lie in the models folder, are no models."""

    aliases: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    adapter_files: tuple[Path, ...] = ()


Names = Mapping[str, ConfiguredNames]


class ConfiguredEntries:
    """Remembers which table each model goes by until names or models change: finding out takes some milliseconds.

    Any thread may ask.
    """

    def __init__(self, names: Callable[[], Names]) -> None:
        """names: what is configured as of now, by a full name of a model; asked each time."""
        self._names = names
        self._known: tuple[Any, dict[str, str]] | None = None

    def apply(self, entries: Sequence[ModelEntry]) -> tuple[ModelEntry, ...]:
        """The entries with what is configured for each, without those that are adapters."""
        names = dict(self._names())
        if not names:
            return tuple(entries)
        adapters = {os.path.normpath(path) for said in names.values() for path in said.adapter_files}
        if adapters:
            entries = [entry for entry in entries if os.path.normpath(entry.path) not in adapters]
        key = (names, [(entry.name, entry.record) for entry in entries])
        known = self._known
        if known is None or known[0] != key:
            known = self._known = (key, tables_of(entries, names))
        return tuple(_with_table(entry, known[1].get(entry.name), names) for entry in entries)


def tables_of(entries: Sequence[ModelEntry], names: Names) -> dict[str, str]:
    """The name among `names` that each model goes by; its own name counts before others."""
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
    return replace(entry, table=table, aliases=names[table].aliases, adapters=names[table].adapters)
