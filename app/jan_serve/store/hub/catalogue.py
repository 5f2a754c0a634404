"""The catalogue of suggested models that ships with jan-serve: short names for places on the hub. Read only."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path

import msgspec

from jan_serve.errors import HubNotFound
from jan_serve.store.hub.references import HubReference


class CatalogueEntry(msgspec.Struct, frozen=True):
    """A suggested model. Sizes in 10^9 bytes, parameters in billions, context in tokens.

    mmproj: the projector that belongs to it. memory_gb: what it needs to run with 8,192 tokens.
    """

    name: str
    title: str
    repo: str
    file: str
    quantization: str
    kinds: tuple[str, ...]
    parameters: float
    size_gb: float
    context: int
    memory_gb: float
    licence: str
    note: str
    mmproj: str | None = None


class Catalogue:
    """The entries by name. Empty where this installation has no catalogue file."""

    def __init__(self, entries: tuple[CatalogueEntry, ...] = ()) -> None:
        self._entries = {entry.name.casefold(): entry for entry in entries}

    @classmethod
    def read(cls, path: Path | None) -> Catalogue:
        """The catalogue in a TOML file, one `[[model]]` table an entry. It ships with us, so a wrong one is a bug."""
        if path is None:
            return cls()
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        return cls(tuple(msgspec.convert(content["model"], list[CatalogueEntry])))

    def entries(self) -> tuple[CatalogueEntry, ...]:
        """All of them, in the order of the file."""
        return tuple(self._entries.values())

    def find(self, name: str) -> CatalogueEntry | None:
        """The entry of this name, in any case."""
        return self._entries.get(name.casefold())

    def reference(self, text: str) -> tuple[HubReference, CatalogueEntry]:
        """Where `name` or `name:QUANT` is on the hub. Raises HubNotFound with names that look like it."""
        name, _, tag = text.partition(":")
        entry = self.find(name)
        if entry is None:
            near = difflib.get_close_matches(name.casefold(), list(self._entries), n=3, cutoff=0.5)
            near = near or [known for known in self._entries if name.casefold() in known][:3]
            hint = (
                f"Did you mean {', '.join(near)}?"
                if near
                else "`jan-serve pull --list` shows the names that are."
            )
            raise HubNotFound(
                f"`{text}` is no name of the catalogue, and models of the hub are named org/repo. {hint}",
                param="model",
            )
        if tag and tag.casefold() not in (entry.quantization.casefold(), "latest"):
            return HubReference(entry.repo, tag=tag), entry
        return HubReference(entry.repo, file=entry.file), entry
