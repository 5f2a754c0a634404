"""This module chooses the lengths of the drafts of a step, and tries drafts again that seem not to pay. Pure.

One stream gets the most expected tokens per second. Of several, a draft makes one faster, and the longer step slows
the others. They get the largest geometric mean of their expected tokens (proportional fairness; Kelly, 1997) for a
power of the step's time. Another program may have slowed the steps that said that drafts do not pay.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace
from math import inf, log, log1p
from typing import Final

import msgspec

from jan_serve.engine.scheduling.step_costs import Curve

# Measurements are inexact: a draft must gain more than twice what they differ by.
_NOISES = 2.0
# Each of several streams waits for the step: one that takes 1.2 times as long must give them 1.44 times the tokens.
_TIME_POWER = 2.0
# A token that is less likely to be accepted is not looked at.
_MIN_CHANCE = 0.001


class DraftCandidate(msgspec.Struct, frozen=True):
    """A possible draft of up to `limit` tokens. share: probability of each token if those before it are accepted.

    token_s: seconds to draft one token.
    """

    share: float
    limit: int
    token_s: float = 0.0


def expected_tokens(candidate: DraftCandidate) -> float:
    """How many tokens of a draft as long as possible would be accepted."""
    share, limit = candidate.share, max(0, candidate.limit)
    return limit if share >= 1.0 else share * (1.0 - share**limit) / (1.0 - share)


def expected_run(candidate: DraftCandidate) -> float:
    """How many tokens are right in a row before a wrong one, in this draft and those after it."""
    return candidate.share / (1.0 - candidate.share) if candidate.share < 1.0 else inf


def dealt(limits: Sequence[int], room: int) -> list[int]:
    """Lengths that share `room` tokens evenly, as far as these limits allow."""
    lengths = [0] * len(limits)
    while room > 0 and (open_ := [i for i, limit in enumerate(limits) if lengths[i] < limit]):
        for index in open_[:room]:
            lengths[index] += 1
        room -= len(open_)
    return lengths


def draft_lengths(
    candidates: Sequence[DraftCandidate],
    num_tokens: int,
    seconds: Curve,
    max_tokens: int,
    *,
    noise: float = 0.0,
    change_s: float = 0.0,
) -> list[int]:
    """Tokens to take of each candidate beside the step's `num_tokens`, at most `max_tokens` in all; 0 if none pays off.

    candidates: one for each stream of the step. seconds: of a step by its rows. noise: how uncertain they are, as a
    share. change_s: how much longer the steps after one with drafts take.
    """
    # Of each stream: the tokens that it may expect, and the probability of one more, which counts only if all before it
    # are accepted. So the gains of a stream fall along its draft.
    expected = [1.0] * len(candidates)
    chances = [each.share for each in candidates]
    # Negative, so that the largest comes first.
    gains = [(-log1p(each.share), index) for index, each in enumerate(candidates) if each.limit > 0]
    heapify(gains)
    streams = len(candidates)
    weight = _TIME_POWER * streams if streams > 1 else 1.0
    best_gain = streams * log1p(_NOISES * noise) - weight * log(seconds(num_tokens)) if gains else 0.0
    lengths, best = [0] * streams, [0] * streams
    gained, spent_s = 0.0, change_s
    for rows in range(num_tokens + 1, num_tokens + 1 + max_tokens):
        if not gains or chances[gains[0][1]] < _MIN_CHANCE:
            break
        negative_gain, index = gains[0]
        candidate = candidates[index]
        gained -= negative_gain
        spent_s += candidate.token_s
        lengths[index] += 1
        gain = gained - weight * log(seconds(rows) + spent_s)
        if gain > best_gain:
            best_gain, best = gain, lengths.copy()
        if lengths[index] < candidate.limit:
            expected[index] += chances[index]
            chances[index] *= candidate.share
            heapreplace(gains, (-log1p(chances[index] / expected[index]), index))
        else:
            heappop(gains)
    return best


_FIRST_STEPS: Final = 32
_MAX_STEPS: Final = 384
_LENGTH: Final = 3
_LIKELY: Final = 0.6
"""Less likely look-ups pay nowhere that is worth a trial. Whether they are right is known without one."""


class DraftTrials:
    """Decides when a step takes a draft against the learnt costs: after 32 steps without, then at doubled intervals. A
    draft that promises little is tried after 384 steps."""

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
