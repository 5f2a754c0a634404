"""A ListedModel is a model as lists show it, without loading it; ModelDetails are all that its header says.

A Variant is the same file under its own name, with own instructions and defaults. A PullStep is the progress of a
download from the hub.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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


class VariantMessage(msgspec.Struct, frozen=True):
    """A turn that precedes every conversation."""

    role: str
    content: str


class Variant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """base: canonical name of the model. created_at: seconds since 1970.

    system: of chats that have no system message. template: Jinja source that replaces the model's. defaults: by fields
    of SamplingParams and StopConditions. parameters: the same as they were sent, to show. adapter: SHA-256 of its LoRA
    adapter, an upload that the store keeps. version: of this record.
    """

    name: str
    base: str
    created_at: float
    system: str | None = None
    template: str | None = None
    messages: tuple[VariantMessage, ...] = ()
    defaults: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    parameters: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    license: str | None = None
    adapter: str | None = None
    version: int = 1


MetadataValue = str | int | float | bool | Sequence[str | int | float | bool]


class TensorFacts(msgspec.Struct, frozen=True):
    """shape: innermost dimension first. type: ggml's name."""

    name: str
    shape: tuple[int, ...]
    type: str


class ModelDetails(msgspec.Struct, frozen=True):
    """metadata: of the GGUF file; empty lists for arrays of more than 256 elements.

    n_ctx: tokens of context that a load gives, as far as that is known before. variant: the one that was asked for.
    """

    model: ListedModel
    metadata: Mapping[str, MetadataValue]
    tensors: tuple[TensorFacts, ...]
    n_embd: int
    n_ctx: int
    variant: Variant | None = None

    @property
    def templates(self) -> dict[str, str]:
        """Chat templates by name, as in ModelFacts.chat_templates."""
        prefix = "tokenizer.chat_template"
        found: dict[str, str] = {}
        for key, value in self.metadata.items():
            if key.startswith(prefix) and isinstance(value, str):
                found[key[len(prefix) + 1 :] or "default"] = value
        return found


class PulledFile(msgspec.Struct, frozen=True):
    """sha256: as the hub lists it."""

    path: str
    size_bytes: int
    sha256: str


class PullStep(msgspec.Struct, frozen=True):
    """files: of the model, in order of transfer. received: bytes of all of them. note: for people, if any.

    done: all files are verified and the model can be used. name: of the model, canonical.
    """

    name: str
    files: tuple[PulledFile, ...]
    received: int
    note: str | None = None
    done: bool = False
