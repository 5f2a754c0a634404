"""What a training run depends on: sizes, schedule, weights of the loss."""

from __future__ import annotations

import math
from dataclasses import dataclass

from models.recipe.gguf_file import LlamaShape


@dataclass(frozen=True)
class Plan:
    """Everything that a run depends on. Sizes in tokens unless said otherwise."""

    seed: int = 1
    vocabulary_size: int = 1280
    n_embd: int = 192
    n_layer: int = 7
    n_head: int = 6
    n_ff: int = 512
    n_ctx: int = 2048
    total_tokens: int = 48_500_000
    late_share: float = 0.5
    step_tokens: int = 4_096
    peak_rate: float = 4e-3
    final_rate_share: float = 0.02
    warmup_steps: int = 60
    cooldown_share: float = 0.6
    weight_decay: float = 0.05
    prompt_weight: float = 0.1
    prompt_share: float = 0.25
    decisive_weight: float = 6.0
    group_cost: int = 100
    averaging: float = 0.995

    def shape(self) -> LlamaShape:
        return LlamaShape(self.vocabulary_size, self.n_embd, self.n_layer, self.n_head, self.n_ff, self.n_ctx)

    def rate(self, seen: int, step: int) -> float:
        """Warm up, hold, then fall to ``final_rate_share`` along a cosine over the last ``cooldown_share``."""
        start = 1 - self.cooldown_share
        done = min(1.0, max(0.0, (seen / self.total_tokens - start) / self.cooldown_share))
        fall = 0.5 * (1 + math.cos(math.pi * done))
        return (
            self.peak_rate
            * min(1.0, (step + 1) / self.warmup_steps)
            * (fall * (1 - self.final_rate_share) + self.final_rate_share)
        )
