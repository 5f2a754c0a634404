"""Text Generation Inference's way from logits to a token, whose result its log-probabilities are told of.

Unlike llama.cpp's chain, the temperature comes before the truncations, both penalties see the whole context with every
token in it, and the frequency penalty counts shares of the context. (`HeterogeneousNextTokenChooser` and
`logits_process.py` of its server.) A grammar's mask comes between `penalise` and `warp`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from jan_serve.core.sampling import SamplingParams
from jan_serve.engine.tokens import Tokens

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ids = npt.NDArray[np.intp]

_FIRST_SORTED: Final = 2048
_MORE: Final = 16
_LARGEST: Final = 1e30
"""Beyond what logits are, and within what float32 holds."""


class Warper:
    """The state of one sequence. Reads temperature, top_k, top_p, typical_p, repeat_penalty and frequency_penalty; the
    other shaping parameters are not part of this pipeline."""

    def __init__(self, params: SamplingParams, seed: int, n_vocab: int) -> None:
        """seed: 0 or more, of any size."""
        self._params = params
        self._random = np.random.PCG64(seed)
        self._penalises = params.repeat_penalty != 1.0 or params.frequency_penalty != 0.0
        self._counts = np.zeros(n_vocab if self._penalises else 0, np.float32)
        self._length = 0

    def observe_prompt(self, tokens: Tokens) -> None:
        """Take the prompt."""
        if self._penalises:
            np.add.at(self._counts, tokens, 1)
            self._length += len(tokens)

    def observe(self, token: int) -> None:
        """Take a token of the completion."""
        if self._penalises:
            self._counts[token] += 1
            self._length += 1

    def penalise(self, logits: Floats) -> None:
        """Both penalties, in place. Shape (n_vocab,)."""
        if self._length == 0:
            return
        repeat, frequency = self._params.repeat_penalty, self._params.frequency_penalty
        seen = np.flatnonzero(self._counts)
        values = logits[seen].astype(np.float64)
        if repeat != 1.0:
            values = np.where(values < 0, values * repeat, values / repeat)
        if frequency != 0.0:
            values -= self._counts[seen] * (frequency / self._length)
        logits[seen] = np.clip(values, -_LARGEST, _LARGEST)

    def warp(self, logits: Floats) -> Floats:
        """What the token is drawn from: excluded tokens at -inf. Greedy leaves all as they are."""
        params = self._params
        if params.temperature <= 0.0:
            return logits
        # From the best one down: whatever the temperature, it stays finite.
        falls = (logits - logits.max()).astype(np.float64) / params.temperature
        warped = np.where(falls < -_LARGEST, -np.inf, falls).astype(np.float32)
        if 0 < params.top_k < len(warped):
            least = np.partition(warped, len(warped) - params.top_k)[len(warped) - params.top_k]
            warped[warped < least] = -np.inf
        if params.top_p < 1.0:
            warped = _kept(warped, *_top_p(warped, params.top_p))
        if params.typical_p < 1.0:
            warped = _kept(warped, *_typical_p(warped, params.typical_p))
        return warped

    def draw(self, warped: Floats) -> int:
        """A token by its probability; the most likely one where sampling is greedy."""
        if self._params.temperature <= 0.0:
            return int(warped.argmax())
        ids = np.flatnonzero(warped > -np.inf)
        reached: Doubles = np.cumsum(_probabilities(warped[ids]))
        unit = (int(self._random.random_raw()) >> 11) * 2.0**-53
        at = int(np.searchsorted(reached, unit * float(reached[-1]), side="right"))
        return int(ids[min(at, len(ids) - 1)])


def _probabilities(values: Floats) -> Doubles:
    """Softmax of finite logits."""
    weights = np.exp(values.astype(np.float64) - float(values.max()))
    return weights / weights.sum()


def _kept(warped: Floats, ids: Ids, keep: npt.NDArray[np.bool_]) -> Floats:
    out = np.full(len(warped), -np.inf, np.float32)
    out[ids[keep]] = warped[ids[keep]]
    return out


def _top_p(warped: Floats, top_p: float) -> tuple[Ids, npt.NDArray[np.bool_]]:
    """Tokens that may be drawn, and which of them stay: those before which there is less than `top_p`."""
    ids = np.flatnonzero(warped > -np.inf)
    probabilities = _probabilities(warped[ids])
    order, reached = _sorted_until(-probabilities, probabilities, top_p)
    keep = np.zeros(len(ids), np.bool_)
    keep[order[reached - probabilities[order] < top_p]] = True
    return ids, keep


def _typical_p(warped: Floats, mass: float) -> tuple[Ids, npt.NDArray[np.bool_]]:
    """The same for locally typical sampling (Meister et al. 2022): those whose surprise is nearest to the entropy."""
    ids = np.flatnonzero(warped > -np.inf)
    probabilities = _probabilities(warped[ids])
    surprise = -np.log(np.maximum(probabilities, np.finfo(np.float64).tiny))
    distance = np.abs(surprise - float((probabilities * surprise).sum()))
    order, reached = _sorted_until(distance, probabilities, mass)
    last = min(int((reached < mass).sum()), len(order) - 1)
    return ids, distance <= distance[order[last]]


def _sorted_until(keys: Doubles, probabilities: Doubles, mass: float) -> tuple[Ids, Doubles]:
    """Positions by rising key up to where their probabilities reach `mass` (or beyond), and the sums up to each."""
    count = min(_FIRST_SORTED, len(keys))
    while True:
        order = np.argpartition(keys, count - 1)[:count]
        order = order[np.lexsort((order, keys[order]))]
        reached = np.cumsum(probabilities[order])
        if count == len(keys) or reached[-1] >= mass:
            return order, reached
        count = min(count * _MORE, len(keys))
