"""What an engine counts of its steps, for the statistics in each Pong."""

from __future__ import annotations

import bisect
from typing import Final

from jan_serve.core.engine_stats import STEP_SIZES

_MAX_EXTRA: Final = 64
"""Accepted draft tokens of one turn that are counted separately."""


class EngineCounters:
    """Since the worker started. EngineStats explains each; its other values are counted where they arise."""

    def __init__(self) -> None:
        self.steps = self.prompt_tokens = self.computed = self.cached = self.shared = 0
        self.step_sizes = [0] * (len(STEP_SIZES) + 1)
        self.extra_tokens = [0] * (_MAX_EXTRA + 1)

    def count_step(self, size: int) -> None:
        """size: tokens that it computed."""
        self.steps += 1
        self.computed += size
        self.step_sizes[bisect.bisect_left(STEP_SIZES, size)] += 1

    def count_turn(self, accepted: int) -> None:
        """accepted: draft tokens beside the sampled one."""
        self.extra_tokens[min(accepted, _MAX_EXTRA)] += 1
