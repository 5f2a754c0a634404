"""How often drafts are right."""

from __future__ import annotations

# Lengths of agreement from which on a guess is taken for better, and how good it is before anything is known.
_CLASSES = ((3, 0.3), (5, 0.5), (9, 0.7), (17, 0.85))
_MODEL_SHARE = 0.7


class DraftRecord:
    """The share of drafted tokens that are right, provided that those before them were, by length of the agreement that
    they rest on. Agreement None stands for what a draft model says.

    weight: of the latest token against all before. like: begin with what is known from others.
    """

    def __init__(self, weight: float = 0.15, like: DraftRecord | None = None) -> None:
        self._weight = weight
        self._shares: list[float] = (
            [*(share for _, share in _CLASSES), _MODEL_SHARE] if like is None else like._shares.copy()
        )

    def share(self, agreement: int | None) -> float:
        """The share of the tokens of a draft that will be right."""
        return self._shares[_class_of(agreement)]

    def observe(self, agreement: int | None, drafted: int, accepted: int) -> None:
        """So many tokens of a draft were right."""
        at = _class_of(agreement)
        for right in [1.0] * accepted + [0.0] * (accepted < drafted):
            self._shares[at] += self._weight * (right - self._shares[at])


def _class_of(agreement: int | None) -> int:
    if agreement is None:
        return len(_CLASSES)
    return max(0, sum(agreement >= least for least, _ in _CLASSES) - 1)
