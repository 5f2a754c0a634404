"""Limits of the native generation routes: the launcher's of Text Generation Inference, with its defaults."""

from __future__ import annotations

from dataclasses import dataclass, field

from jan_serve.core.model_facts import ModelFacts
from jan_serve.core.sampling import Watermark


@dataclass(frozen=True, slots=True)
class GenerateLimits:
    """What one request may ask for. /info shows them. None: what the model's context gives.

    max_concurrent_requests: beyond it, requests are refused as overloaded. max_body_bytes: of a request, not in /info.
    watermark: what `watermark: true` means. compute_type: what the header x-compute-type says; None: what computes.
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
    watermark: Watermark = field(default_factory=Watermark)

    def total_tokens(self, facts: ModelFacts) -> int:
        """Prompt and completion together."""
        return facts.n_ctx if self.max_total_tokens is None else min(self.max_total_tokens, facts.n_ctx)

    def input_tokens(self, facts: ModelFacts) -> int:
        """The prompt. Always leaves room for a token."""
        most = self.total_tokens(facts) - 1
        return most if self.max_input_tokens is None else min(self.max_input_tokens, most)
