"""Where Ollama's routes are."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "/api"
UPLOADS: Final = "/api/blobs"
