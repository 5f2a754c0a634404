"""A named variant of a model: the same file with own instructions and defaults."""

from __future__ import annotations

from typing import Any

import msgspec


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
