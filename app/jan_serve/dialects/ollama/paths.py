"""Where Ollama's routes are."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "/api"
GREETING: Final = "Ollama is running"
"""At `/`, where its clients look for it."""
UPLOADS: Final = "/api/blobs"
