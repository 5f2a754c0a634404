"""Acceptance rates of drafts."""

from __future__ import annotations

# Classes of guesses: the shortest match, and the acceptance rate assumed before the first measurement.
_CLASSES = ((3, 0.3), (5, 0.5), (9, 0.7), (17, 0.85))
_MODEL_SHARE = 0.7
_SLOWER = 0.5
"""Weight of the latest token in the slower average, relative to the faster one."""


class DraftRecord:
    """Acceptance rate of a drafted token after accepted ones, by the length of the match that it follows.

    The lower of two exponential averages, so that a run of luck promises little. A match of None stands for the draft
    model. weight: of the latest token in the faster average. like: the record to start from.
    """

    def __init__(self, weight: float = 0.15, like: DraftRecord | None = None) -> None:
        self._weight = weight
        first = [*(share for _, share in _CLASSES), _MODEL_SHARE]
        self._shares: list[float] = first if like is None else like._shares.copy()
        self._slower: list[float] = first.copy() if like is None else like._slower.copy()

    def share(self, match_length: int | None) -> float:
        index = _class_of(match_length)
        return min(self._shares[index], self._slower[index])

    def observe(self, match_length: int | None, drafted: int, accepted: int) -> None:
        """Learn that `accepted` of `drafted` tokens were accepted."""
        index = _class_of(match_length)
        for right in [1.0] * accepted + [0.0] * (accepted < drafted):
            self._shares[index] += self._weight * (right - self._shares[index])
            self._slower[index] += _SLOWER * self._weight * (right - self._slower[index])


def _class_of(match_length: int | None) -> int:
    if match_length is None:
        return len(_CLASSES)
    return max(0, sum(match_length >= shortest for shortest, _ in _CLASSES) - 1)
