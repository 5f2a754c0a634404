"""What of Text Generation Inference's limits cannot be set."""

from __future__ import annotations

from typing import Final

VALIDATION_WORKERS: Final = 2
SLICE_TOKENS: Final = 1024
"""What `max_new_tokens` counts as at most when the length of a request is checked."""
MAX_U32: Final = (1 << 32) - 1
MAX_U64: Final = (1 << 64) - 1
MAX_INSTANCES: Final = 128
"""Of one call of /vertex."""
