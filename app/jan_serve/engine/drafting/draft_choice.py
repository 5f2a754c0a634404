"""Chooses the lengths of the drafts of a step: most expected tokens per second, at steps not much longer. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace
from math import inf

import msgspec

from jan_serve.engine.scheduling.decode_costs import Curve

# Measurements are inexact: a draft must gain more than 2 %, and more than twice what they differ by.
_MARGIN = 1.02
# A longer step makes the other streams stutter: when it takes 1.4 times as long, all streams together must gain 10 %.
_SMOOTHNESS = 0.3
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
    # A token counts only if all before it are accepted, so its probability falls along its draft.
    chances = [(-each.share, index) for index, each in enumerate(candidates) if each.limit > 0]
    heapify(chances)
    weight = 1.0 if len(candidates) == 1 else 1.0 + _SMOOTHNESS
    best_rate = (_MARGIN + 2.0 * noise) * num_tokens / seconds(num_tokens) ** weight if chances else 0.0
    lengths, best = [0] * len(candidates), [0] * len(candidates)
    gained, spent_s = float(num_tokens), change_s
    for rows in range(num_tokens + 1, num_tokens + 1 + max_tokens):
        if not chances or -chances[0][0] < _MIN_CHANCE:
            break
        chance, index = chances[0]
        candidate = candidates[index]
        gained -= chance
        spent_s += candidate.token_s
        lengths[index] += 1
        rate = gained / (seconds(rows) + spent_s) ** weight
        if rate > best_rate:
            best_rate, best = rate, lengths.copy()
        if lengths[index] < candidate.limit:
            heapreplace(chances, (chance * candidate.share, index))
        else:
            heappop(chances)
    return best
