"""Where LM Studio's routes are."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "/api/v0"
