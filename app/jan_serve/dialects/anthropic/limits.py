"""Limits on requests. Checked before any work is done."""

from __future__ import annotations

from typing import Final

MAX_MESSAGES: Final = 10_000
MAX_BLOCKS: Final = 1_000
"""Content blocks of a message, or of a block."""

MAX_TOOLS: Final = 512
MAX_STOPS: Final = 64
MAX_TEMPERATURE: Final = 2.0
"""Anthropic's is 1; local models are used with more."""

MAX_PAGE: Final = 1_000
"""Models in one page of a list."""
