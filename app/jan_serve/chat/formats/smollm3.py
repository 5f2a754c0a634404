"""SmolLM3: the Hermes format; its template reads `xml_tools`, or no tools at all."""

from __future__ import annotations

import msgspec

from jan_serve.chat.chat_format import Signature
from jan_serve.chat.formats.hermes import HERMES

SMOLLM3 = msgspec.structs.replace(
    HERMES, name="smollm3", signature=Signature(any_of=("xml_tools", "named SmolLM"))
)
