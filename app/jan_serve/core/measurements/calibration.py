"""How sure a model is, corrected by examples."""

from __future__ import annotations

import msgspec


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """temperature: divides the logarithms of the options' probabilities. examples: how many it was fitted on.

    accuracy: the share of them whose answer is the most probable option. loss_before, loss_after: the mean negative
    logarithm of the probability of their answers, at temperature 1 and at this one. at_bound: whether a better
    temperature lies outside the bounds.
    """

    temperature: float
    examples: int
    accuracy: float
    loss_before: float
    loss_after: float
    at_bound: bool
