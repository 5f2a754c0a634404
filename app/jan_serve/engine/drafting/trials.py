"""Tries drafts again that seem not to pay, since another program may have slowed the steps that said so. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from jan_serve.engine.drafting.draft_choice import DraftCandidate, expected_tokens

_FIRST_STEPS: Final = 32
_MAX_STEPS: Final = 384
_LENGTH: Final = 3
_LIKELY: Final = 0.6
"""Less likely look-ups pay nowhere that is worth a trial. Whether they are right is known without one."""


class Trials:
    """Decides when a step takes a draft against the learnt costs: after 32 steps without, then at doubled intervals.

    A draft that promises little is tried after 384 steps.
    """

    def __init__(self) -> None:
        self._interval = _FIRST_STEPS
        self._without = 0

    def lengths(
        self, chosen: list[int], candidates: Sequence[DraftCandidate], room: int, least_tokens: float = 0.0
    ) -> list[int]:
        """The lengths to take instead of those chosen by the costs.

        least_tokens: what a draft must promise to be tried.
        """
        if any(chosen):
            self._interval, self._without = _FIRST_STEPS, 0
            return chosen
        best = max(range(len(candidates)), key=lambda index: candidates[index].share)
        likely = candidates[best]
        is_likely = likely.share >= _LIKELY
        if not (is_likely or likely.token_s) or likely.limit <= 0:
            return chosen
        self._without += 1
        promises = is_likely and expected_tokens(likely) >= least_tokens
        if self._without < (self._interval if promises else _MAX_STEPS):
            return chosen
        self._interval, self._without = min(_MAX_STEPS, 2 * self._interval), 0
        length = min(likely.limit, room, max(_LENGTH, round(2 * least_tokens)))
        return [length if index == best else 0 for index in range(len(candidates))]
