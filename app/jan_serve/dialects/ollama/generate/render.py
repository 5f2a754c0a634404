"""The shape of /api/generate: text and thought beside the other members. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jan_serve.dialects.ollama.render_common import OllamaCall


def text_shape(text: str, thought: str, calls: Sequence[OllamaCall]) -> dict[str, Any]:
    """calls: always empty, because a text offers no tools."""
    return {"response": text, **({"thinking": thought} if thought else {})}
