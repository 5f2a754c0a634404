"""A model of the store, as the resolver lists it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from jan_serve.store.index import ModelRecord


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
    """The model of requests that name none. reason: for people. entry: None if there is no model.

    is_expected: it is configured, or no other model is there, so that it is worth loading before the first request.
    """

    entry: ModelEntry | None
    reason: str
    is_expected: bool = False
