"""What a chat template is rendered with, beside the messages. Values only."""

from __future__ import annotations

import msgspec


class TemplateFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a render needs of the model. source: None where the GGUF brings no template."""

    source: str | None
    bos_token: str = ""
    eos_token: str = ""
