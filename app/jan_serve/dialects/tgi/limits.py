"""Text Generation Inference's limits that are fixed."""

from __future__ import annotations

from typing import Final

VALIDATION_WORKERS: Final = 2
SLICE_TOKENS: Final = 1024
"""The check of a request's length counts `max_new_tokens` up to this."""
MAX_U32: Final = (1 << 32) - 1
MAX_U64: Final = (1 << 64) - 1
MAX_INSTANCES: Final = 128
"""Of one call of /vertex."""
