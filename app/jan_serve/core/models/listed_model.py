"""A model as lists show it, without loading it."""

from __future__ import annotations

import msgspec


class HeaderFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts from a GGUF header, kept so that a list of models reads no headers.

    thinks: its chat template writes thoughts; None if nobody looked. fills_gaps: it has tokens for text in the middle.
    n_embd: length of its embeddings; None in records of earlier versions.
    """

    architecture: str
    title: str | None = None
    n_ctx_train: int | None = None
    n_parameters: int = 0
    quantisation: str | None = None
    has_chat_template: bool = False
    thinks: bool | None = None
    fills_gaps: bool = False
    n_embd: int | None = None
    pooling: str | None = None

    @property
    def writes_text(self) -> bool:
        """It pools nothing, so that it is not for embeddings or scores alone."""
        return self.pooling in (None, "none")

    @property
    def is_base(self) -> bool:
        """It continues text: it has no chat template, with which it could chat."""
        return self.writes_text and not self.has_chat_template


class ListedModel(msgspec.Struct, frozen=True, cache_hash=True):
    """A model on this machine. size_bytes: all its files. source: `hub`, `ollama` …, `folder`, `built in`, `--model`.

    adapters: names of the LoRA adapters that it is loaded with. modified_at: seconds since 1970. facts: None if the
    header was not read yet, or cannot be read, for the reason in `problem`. sha256: of the first file, if recorded.
    modalities: what it reads beside text (vision, audio).
    """

    name: str
    aliases: tuple[str, ...]
    adapters: tuple[str, ...]
    source: str
    source_name: str
    size_bytes: int
    modified_at: int
    can_remove: bool
    facts: HeaderFacts | None
    problem: str | None
    sha256: str | None = None
    modalities: tuple[str, ...] = ()
