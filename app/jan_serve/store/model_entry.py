"""A model that is here and can be asked for: a value, made by the resolver."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jan_serve.store.index import ModelRecord


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model that is here. `name` is canonical: the path in the models folder with `/`, without `.gguf`.

    size_bytes and modified_ns (nanoseconds since 1970) are of the first file of a split model. record: what the index
    knows about it, None where it was put there by hand and never looked at. table: the name under which something was
    configured for it; aliases and adapters (names of LoRA adapters) are from there.
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

    @property
    def all_aliases(self) -> tuple[str, ...]:
        """The configured ones, and those that it was pulled or imported with."""
        recorded = self.record.aliases if self.record is not None else ()
        return tuple(dict.fromkeys((*self.aliases, *recorded)))
