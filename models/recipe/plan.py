"""The plan of a training run: sizes, schedule, weights of the loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from models.recipe.gguf_file import LlamaShape


@dataclass(frozen=True)
class Plan:
    """All parameters of a run. Sizes in tokens unless stated otherwise.

    The shares of the cycles add up to one; their peaks are shares of ``peak_rate``.
    """

    seed: int = 1
    vocabulary_size: int = 1280
    n_embd: int = 192
    n_layer: int = 7
    n_head: int = 6
    n_ff: int = 512
    n_ctx: int = 2048
    total_tokens: int = 44_000_000
    cycle_shares: tuple[float, ...] = (0.24, 0.36, 0.4)
    cycle_peaks: tuple[float, ...] = (1.0, 0.8, 0.35)
    row_tokens: int = 448
    step_rows: int = 10
    peak_rate: float = 4e-3
    final_rate_share: float = 0.02
    warmup_steps: int = 60
    cooldown_share: float = 0.75
    weight_decay: float = 0.05
    prompt_weight: float = 0.1
    prompt_share: float = 0.25
    decisive_weight: float = 6.0
    averaging: float = 0.995

    def __post_init__(self) -> None:
        if len(self.cycle_shares) != len(self.cycle_peaks):
            raise ValueError(f"cycle_peaks: {len(self.cycle_shares)} cycles have as many peaks")
        if not math.isclose(sum(self.cycle_shares), 1.0) or min(self.cycle_shares) <= 0:
            raise ValueError("cycle_shares: they are above 0 and add up to 1")
        if not 0 < self.cooldown_share <= 1:
            raise ValueError("cooldown_share: above 0 and up to 1")

    def shape(self) -> LlamaShape:
        return LlamaShape(self.vocabulary_size, self.n_embd, self.n_layer, self.n_head, self.n_ff, self.n_ctx)

    def rate(self, seen: int, step: int) -> float:
        """Warm up, then cycles (SGDR; Loshchilov and Hutter, 2017), each of which holds its peak for a time and falls
        along a cosine to ``final_rate_share`` of the first one's."""
        peak, done = self._cycle(seen / self.total_tokens)
        low = self.peak_rate * self.final_rate_share
        fall = 0.5 * (1 + math.cos(math.pi * max(0.0, 1 - (1 - done) / self.cooldown_share)))
        return min(1.0, (step + 1) / self.warmup_steps) * (low + fall * (peak - low))

    def is_late(self, seen: int) -> bool:
        """Whether the second stage of the corpus has begun: it does with the second cycle."""
        return seen / self.total_tokens >= self.cycle_shares[0]

    def _cycle(self, done: float) -> tuple[float, float]:
        """The peak rate of the cycle at this share of the run, and the completed share of the cycle."""
        start = 0.0
        for share, peak in zip(self.cycle_shares, self.cycle_peaks, strict=True):
            if done < start + share:
                return self.peak_rate * peak, (done - start) / share
            start += share
        return self.peak_rate * self.cycle_peaks[-1], 1.0


def reader_of(default: object) -> Callable[[str], object]:
    """The parser of an option's text into a value like ``default``; commas separate several numbers."""
    if isinstance(default, tuple):
        return lambda text: tuple(float(part) for part in text.split(","))
    return type(default)
