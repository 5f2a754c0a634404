"""The shipped catalogue of suggested models: short names for files on the hub."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path

import msgspec

from jan_serve.errors import HubNotFound
from jan_serve.store.hub.references import HubReference


class CatalogueEntry(msgspec.Struct, frozen=True):
    """A suggested model. Sizes in 10^9 bytes, parameters in billions, context in tokens.

    mmproj: its projector. memory_gb: memory to run it with 8,192 tokens.
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
    """Empty if this installation has no catalogue file."""

    def __init__(self, entries: tuple[CatalogueEntry, ...] = ()) -> None:
        self._entries = {entry.name.casefold(): entry for entry in entries}

    @classmethod
    def read(cls, path: Path | None) -> Catalogue:
        """Read a TOML file with a `[[model]]` table per entry. The file is shipped, so errors in it are bugs."""
        if path is None:
            return cls()
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        return cls(tuple(msgspec.convert(content["model"], list[CatalogueEntry])))

    def entries(self) -> tuple[CatalogueEntry, ...]:
        """All entries, in the order of the file."""
        return tuple(self._entries.values())

    def find(self, name: str) -> CatalogueEntry | None:
        """name: in any case."""
        return self._entries.get(name.casefold())

    def has(self, text: str) -> bool:
        """Whether `reference` knows it."""
        return self.find(text.partition(":")[0]) is not None

    def reference(self, text: str) -> tuple[HubReference, CatalogueEntry]:
        """Resolve `name` or `name:QUANT`. Raises HubNotFound with similar names."""
        name, _, tag = text.partition(":")
        entry = self.find(name)
        if entry is None:
            near = difflib.get_close_matches(name.casefold(), list(self._entries), n=3, cutoff=0.5)
            near = near or [known for known in self._entries if name.casefold() in known][:3]
            hint = (
                f"Did you mean {', '.join(near)}?" if near else "`jan-serve pull --list` shows the catalogue."
            )
            raise HubNotFound(
                f"There is no model `{text}` in the catalogue. {hint} For any other model, give its Hugging Face name: "
                "org/repo.",
                param="model",
            )
        if tag and tag.casefold() not in (entry.quantization.casefold(), "latest"):
            return HubReference(entry.repo, tag=tag), entry
        return HubReference(entry.repo, file=entry.file), entry
