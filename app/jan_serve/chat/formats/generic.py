"""The Hermes format, for templates without tools: `tool_instructions` asks the model to write it.

A tag identifies a call at once, so text still streams, and most models have seen this format.
"""

from __future__ import annotations

import msgspec

from jan_serve.chat.chat_format import Signature
from jan_serve.chat.formats.hermes import HERMES

GENERIC = msgspec.structs.replace(HERMES, name="generic", signature=Signature())
