"""Sampling by logits warpers in the order of Text Generation Inference: log-probabilities are those of the result.

Unlike in llama.cpp's chain, temperature precedes truncation, both penalties cover the whole context with every token in
it, and the frequency penalty is relative to the length of the context. (`HeterogeneousNextTokenChooser` and
`logits_process.py` of its server.) A grammar's mask comes between `penalise` and `warp`.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from jan_serve.core.sampling import SamplingParams
from jan_serve.engine.tokens import Tokens

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ids = npt.NDArray[np.intp]

_DEPTHS: Final = (8.0, 16.0)
"""Distances below the best logit to search first: sorting a whole vocabulary is the most expensive step."""
_MAX_LOGIT: Final = 1e30
_MIN_TEMPERATURE: Final = 1e-30
"""Beyond the range of real logits and temperatures, and within that of float32."""


class WarpedSampler:
    """Sampling state of one sequence. Uses temperature, top_k, top_p, typical_p, repeat_penalty and frequency_penalty
    only."""

    def __init__(self, params: SamplingParams, seed: int, n_vocab: int) -> None:
        """seed: 0 or more, of any size."""
        self._params = params
        self._random = np.random.PCG64(seed)
        self._penalises = params.repeat_penalty != 1.0 or params.frequency_penalty != 0.0
        self._counts = np.zeros(n_vocab if self._penalises else 0, np.float32)
        self._length = 0

    def observe_prompt(self, tokens: Tokens) -> None:
        if self._penalises:
            np.add.at(self._counts, tokens, 1)
            self._length += len(tokens)

    def observe(self, token: int) -> None:
        if self._penalises:
            self._counts[token] += 1
            self._length += 1

    def penalise(self, logits: Floats) -> None:
        """Apply both penalties in place. Shape (n_vocab,)."""
        if self._length == 0:
            return
        repeat, frequency = self._params.repeat_penalty, self._params.frequency_penalty
        seen = np.flatnonzero(self._counts)
        values = logits[seen].astype(np.float64)
        if repeat != 1.0:
            with np.errstate(over="ignore"):
                values = np.where(values < 0, values * repeat, values / repeat)
        if frequency != 0.0:
            values -= self._counts[seen] * (frequency / self._length)
        logits[seen] = np.clip(values, -_MAX_LOGIT, _MAX_LOGIT)

    def warp(self, logits: Floats) -> Floats:
        """The logits to draw from, with excluded tokens at -inf; unchanged if sampling is greedy."""
        params = self._params
        if params.temperature <= 0.0:
            return logits
        warped = logits
        if params.temperature != 1.0:
            # Relative to the best logit, which stays finite at any temperature.
            with np.errstate(over="ignore"):
                warped = (logits - logits.max()) / np.float32(max(params.temperature, _MIN_TEMPERATURE))
        if 0 < params.top_k < len(warped):
            lowest = np.partition(warped, len(warped) - params.top_k)[len(warped) - params.top_k]
            warped = np.where(warped < lowest, np.float32(-np.inf), warped)
        if params.top_p < 1.0:
            warped = _kept(warped, _top_p(warped, params.top_p))
        if params.typical_p < 1.0:
            warped = _kept(warped, _typical_p(warped, params.typical_p))
        return warped

    def draw(self, warped: Floats) -> int:
        """Draw a token by its probability; the most likely one if sampling is greedy."""
        if self._params.temperature <= 0.0:
            return int(warped.argmax())
        reached: Doubles = np.cumsum(_weights(warped), dtype=np.float64)
        unit = (int(self._random.random_raw()) >> 11) * 2.0**-53
        # The first token beyond the drawn mass; never one without weight.
        return int(np.searchsorted(reached, unit * float(reached[-1]), side="right"))


def _weights(logits: Floats) -> Floats:
    """Proportional to the probabilities; 1 for the most likely token."""
    return np.exp(logits - logits.max())


def _kept(warped: Floats, ids: Ids) -> Floats:
    out = np.full(len(warped), -np.inf, np.float32)
    out[ids] = warped[ids]
    return out


def _top_p(warped: Floats, top_p: float) -> Ids:
    """The tokens, most likely first, whose predecessors have less than `top_p` of the mass."""
    falls = warped - warped.max()
    weights = np.exp(falls)
    total = float(weights.sum(dtype=np.float64))
    for depth in _DEPTHS:
        ids = np.flatnonzero(falls > -depth)
        if float(weights[ids].sum(dtype=np.float64)) >= top_p * total:
            break
    else:
        ids = np.flatnonzero(falls > -np.inf)
    ids = ids[np.argsort(-weights[ids], kind="stable")]
    probabilities = weights[ids].astype(np.float64) / total
    return ids[np.cumsum(probabilities) - probabilities < top_p]


def _typical_p(warped: Floats, mass: float) -> Ids:
    """Locally typical sampling (Meister et al. 2022): the tokens whose surprisal is nearest to the entropy."""
    falls = warped - warped.max()
    weights = np.exp(falls)
    total = float(weights.sum(dtype=np.float64))
    log_total = math.log(total)
    entropy = log_total - float((weights * np.maximum(falls, -_MAX_LOGIT)).sum(dtype=np.float64)) / total
    for depth in _DEPTHS:
        ids = np.flatnonzero(falls > -depth)
        distance, last = _nearest(falls[ids], weights[ids], total, entropy, mass)
        if last <= depth + log_total - entropy:  # less likely tokens are farther away
            break
    else:
        ids = np.flatnonzero(falls > -np.inf)
        distance, last = _nearest(falls[ids], weights[ids], total, entropy, mass)
    return ids[distance <= last]


def _nearest(
    falls: Floats, weights: Floats, total: float, entropy: float, mass: float
) -> tuple[Doubles, float]:
    """Distance of each token's surprisal from the entropy, and the largest distance that `mass` needs."""
    distance = np.abs(math.log(total) - falls.astype(np.float64) - entropy)
    order = np.argsort(distance, kind="stable")
    reached = np.cumsum(weights[order].astype(np.float64)) / total
    needed = int((reached < mass).sum())
    return distance, float(distance[order[needed]]) if needed < len(order) else math.inf
