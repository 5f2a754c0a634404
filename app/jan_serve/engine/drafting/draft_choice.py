"""Chooses the lengths of the drafts of a step: most expected tokens per second, at steps not much longer. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from jan_serve.engine.scheduling.decode_costs import Seconds

# Measurements are inexact: a draft must gain more than 2 %, and more than twice what they differ by.
_MARGIN = 1.02
# A longer step makes the other streams stutter: when it takes 1.4 times as long, all streams together must gain 10 %.
_SMOOTHNESS = 0.3


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
    curve: Seconds,
    max_tokens: int,
    *,
    noise: float = 0.0,
    change_s: float = 0.0,
) -> list[int]:
    """Tokens to take of each candidate beside the step's `num_tokens`, at most `max_tokens` in all; 0 if none pays off.

    candidates: one for each stream of the step. curve: seconds of a step by its number of tokens. noise: how uncertain
    they are, as a share. change_s: how much longer the steps after one with drafts take.
    """
    max_tokens = min(max_tokens, len(curve) - 1 - num_tokens)
    longest = max((candidate.limit for candidate in candidates), default=0)
    if max_tokens <= 0 or longest <= 0:
        return [0] * len(candidates)
    shares = np.array([candidate.share for candidate in candidates])
    limits = np.array([candidate.limit for candidate in candidates])
    positions = np.arange(1, longest + 1)
    # A token counts only if all before it are accepted, so its probability falls along its draft.
    chances = np.where(positions <= limits[:, None], shares[:, None] ** positions, 0.0)
    order = np.argsort(-chances, axis=None, kind="stable")[:max_tokens]
    owners = order // longest
    gained = num_tokens + np.cumsum(chances.ravel()[order])
    guessing = np.cumsum(np.array([candidate.token_s for candidate in candidates])[owners])
    weight = 1.0 if len(candidates) == 1 else 1.0 + _SMOOTHNESS
    seconds = curve[num_tokens + 1 : num_tokens + 1 + len(order)] + guessing + change_s
    gains = gained / seconds**weight
    best = int(gains.argmax())
    if gains[best] <= (_MARGIN + 2.0 * noise) * num_tokens / curve[num_tokens] ** weight:
        return [0] * len(candidates)
    taken = order[: best + 1]
    useful = chances.ravel()[taken] > 0.0
    counts: list[int] = np.bincount(owners[: best + 1][useful], minlength=len(candidates)).tolist()
    return counts
