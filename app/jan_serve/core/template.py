"""Facts of a model that chat templates need."""

from __future__ import annotations

import msgspec


class TemplateFacts(msgspec.Struct, frozen=True, kw_only=True):
    """source: None if the GGUF has no template."""

    source: str | None
    bos_token: str = ""
    eos_token: str = ""
