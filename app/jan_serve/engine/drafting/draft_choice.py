"""How long the drafts of a step should be: as long as the step then gives the most tokens in its time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jan_serve.engine.drafting.step_costs import Seconds

# What is measured is never exact: a draft that hardly pays is not worth the risk.
_MARGIN = 1.02


@dataclass(frozen=True, slots=True)
class DraftCandidate:
    """A draft that could be computed: `limit` tokens at most, each right with `share` if those before it are.

    token_s: seconds that it takes to guess one of its tokens.
    """

    share: float
    limit: int
    token_s: float = 0.0


def draft_lengths(
    candidates: Sequence[DraftCandidate], num_tokens: int, curve: Seconds, most: int
) -> list[int]:
    """Tokens to take of each candidate beside `num_tokens` that are computed anyway, `most` in all; 0 where none pays.

    curve: seconds of a step by its number of tokens.
    """
    most = min(most, len(curve) - 1 - num_tokens)
    longest = max((candidate.limit for candidate in candidates), default=0)
    if most <= 0 or longest <= 0:
        return [0] * len(candidates)
    shares = np.array([candidate.share for candidate in candidates])
    limits = np.array([candidate.limit for candidate in candidates])
    places = np.arange(1, longest + 1)
    # A token is of use if all before it are right, so that its chance falls along its draft.
    chances = np.where(places <= limits[:, None], shares[:, None] ** places, 0.0)
    order = np.argsort(-chances, axis=None, kind="stable")[:most]
    owners = order // longest
    gained = num_tokens + np.cumsum(chances.ravel()[order])
    guessing = np.cumsum(np.array([candidate.token_s for candidate in candidates])[owners])
    rates = gained / (curve[num_tokens + 1 : num_tokens + 1 + len(order)] + guessing)
    best = int(rates.argmax())
    if rates[best] <= _MARGIN * num_tokens / curve[num_tokens]:
        return [0] * len(candidates)
    taken = order[: best + 1]
    useful = chances.ravel()[taken] > 0.0
    counts: list[int] = np.bincount(owners[: best + 1][useful], minlength=len(candidates)).tolist()
    return counts
