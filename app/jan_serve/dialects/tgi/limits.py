"""Text Generation Inference's limits: those that are fixed, and those of its launcher, with its defaults."""

from __future__ import annotations

from typing import Final

import msgspec

from jan_serve.core.models import ModelFacts
from jan_serve.core.request import Watermark

VALIDATION_WORKERS: Final = 2
SLICE_TOKENS: Final = 1024
"""The check of a request's length counts `max_new_tokens` up to this."""
MAX_U32: Final = (1 << 32) - 1
MAX_U64: Final = (1 << 64) - 1
MAX_INSTANCES: Final = 128
"""Most instances of one call of /vertex."""


class GenerateLimits(msgspec.Struct, frozen=True):
    """Limits of one request, shown by /info. None: as the model's context allows.

    max_concurrent_requests: more are rejected as overloaded. max_body_bytes: of a request, not in /info.
    watermark: for requests with `watermark: true`. compute_type: the header x-compute-type; None: from the device.
    """

    max_concurrent_requests: int = 128
    max_best_of: int = 2
    max_stop_sequences: int = 4
    max_top_n_tokens: int = 5
    max_client_batch_size: int = 4
    max_input_tokens: int | None = None
    max_total_tokens: int | None = None
    max_body_bytes: int = 2_000_000
    compute_type: str | None = None
    watermark: Watermark = msgspec.field(default_factory=Watermark)

    def total_tokens(self, facts: ModelFacts) -> int:
        """Prompt and completion together."""
        longest = facts.longest_ctx
        return longest if self.max_total_tokens is None else min(self.max_total_tokens, longest)

    def input_tokens(self, facts: ModelFacts) -> int:
        """The prompt. Always leaves room for a token."""
        max_input = self.total_tokens(facts) - 1
        return max_input if self.max_input_tokens is None else min(self.max_input_tokens, max_input)
