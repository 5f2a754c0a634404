"""TGI's limits, with its defaults; /info shows them."""

from __future__ import annotations

from typing import Final

MAX_BEST_OF: Final = 2
MAX_STOP_SEQUENCES: Final = 4
MAX_TOP_N_TOKENS: Final = 5
MAX_CLIENT_BATCH_SIZE: Final = 4
VALIDATION_WORKERS: Final = 2
SLICE_TOKENS: Final = 1024
"""What `max_new_tokens` counts as at most when the length of a request is checked."""
