"""A Sampler picks the next token of one sequence from its logits."""

from __future__ import annotations

import math
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from jan_serve.core.events import TokenLogprob
from jan_serve.core.request import SamplingParams
from jan_serve.engine.constraint.grammar_executor import GrammarExecutor
from jan_serve.engine.constraint.guide import GuidedExecutor
from jan_serve.engine.llama.chain import Candidates, SamplerChain
from jan_serve.engine.llama.vocab import Vocab
from jan_serve.engine.penalties import Penalties, has_penalties
from jan_serve.engine.tokens import Tokens
from jan_serve.errors import EngineFailure, GrammarTooComplex
from jan_serve.ipc.messages import EngineRequest
from jan_serve.text.watermark import green_tokens

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
        self.draws = 0
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

    def skip(self, draws: int) -> None:
        """Use up random numbers, as `draw` does."""
        self.draws += draws
        self._random.advance(draws)

    def draw(self, warped: Floats) -> int:
        """Draw a token by its probability; the most likely one if sampling is greedy."""
        if self._params.temperature <= 0.0:
            return int(warped.argmax())
        self.draws += 1
        reached: Doubles = np.cumsum(np.exp(warped - warped.max()), dtype=np.float64)
        unit = (int(self._random.random_raw()) >> 11) * 2.0**-53
        # The first token beyond the drawn mass; never one without weight.
        return int(np.searchsorted(reached, unit * float(reached[-1]), side="right"))


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


_MAX_TIES = 64
_SEEDS = 0xFFFFFFFF  # llama.cpp's seeds are uint32; the largest one requests a random seed


class Sampled(msgspec.Struct, frozen=True):
    """A sampled token. logprob and top are computed on request only: of the raw logits, or in the `warped` pipeline of
    those that the token was drawn from."""

    token: int
    logprob: float | None = None
    top: tuple[TokenLogprob, ...] = ()


class Sampler:
    """Sampling state of one sequence. Only the scratch array of candidates is shared with others. `sample` changes its
    row of logits in place (biases, masks)."""

    def __init__(
        self,
        request: EngineRequest,
        seed: int,
        vocab: Vocab,
        n_ctx: int,
        candidates: Candidates,
        *,
        grammar: GrammarExecutor | GuidedExecutor | None,
        jump_forward: bool = True,
        draws: int = 0,
    ) -> None:
        """draws: random numbers that an earlier sampler of this sequence used. Mirostat begins anew instead."""
        params, stopping = request.sampling, request.stopping
        self._jump_forward = jump_forward
        self._vocab = vocab
        self._candidates = candidates
        self._logprobs = request.logprobs
        self._grammar = grammar
        self._mask_first = params.mirostat_mode != 0 and params.temperature > 0.0
        self._eog = np.array(vocab.eog_ids, np.int64)
        self._min_tokens = stopping.min_tokens
        self._ignore_eos = stopping.ignore_eos
        self._bias_ids = np.array(list(params.logit_bias.keys()), np.int64)
        self._bias = np.array(list(params.logit_bias.values()), np.float32)
        self._count = 0
        self._chain: SamplerChain | None = None
        self._penalties: Penalties | None = None
        self._watermark = params.watermark
        self._last: int | None = None
        self._forbidden: int | None = None
        self._warped: WarpedSampler | None = None
        if params.pipeline == "warped":
            self._warped = WarpedSampler(params, seed, vocab.n_tokens)
        elif params.temperature > 0.0:
            if params.mirostat_mode:
                seed, draws = seed + draws, 0
            self._chain = SamplerChain(params, seed % _SEEDS, vocab.n_tokens, vocab=vocab)
        if self._warped is None and has_penalties(params):
            self._penalties = Penalties(params, n_ctx)
        if (drawing := self._warped or self._chain) is not None and params.temperature > 0.0:
            drawing.skip(draws)
        self._window = params.repeat_last_n

    @property
    def is_complete(self) -> bool:
        """Whether the grammar allows nothing more."""
        return self._grammar is not None and self._grammar.is_complete

    @property
    def draws(self) -> int:
        """Random numbers used so far, if sampling is not greedy."""
        drawing = self._warped or self._chain
        return 0 if drawing is None else drawing.draws

    def observe_prompt(self, tokens: Tokens) -> None:
        """Count the prompt for the penalties, and its last token for the watermark."""
        self._last = int(tokens[-1]) if len(tokens) else None
        if self._warped is not None:
            self._warped.observe_prompt(tokens)
        if self._penalties is not None:
            tail = tokens if self._window < 0 else tokens[max(0, len(tokens) - self._window) :]
            for token in tail.tolist():
                self._penalise(token)

    def sample(self, logits: Floats) -> Sampled:
        """Sample and accept the next token. Raises GrammarTooComplex if no token can continue the grammar."""
        raw = logits.copy() if self._logprobs is not None and self._warped is None else logits
        if (mark := self._watermark) is not None and self._last is not None:
            green = green_tokens(len(logits), self._last, mark.gamma)
            logits += green.astype(np.float32) * np.float32(mark.delta)
        if len(self._bias_ids):
            logits[self._bias_ids] += self._bias
        if self._ignore_eos or self._count < self._min_tokens:
            self._forbid_end(logits)
        if self._forbidden is not None:
            self._forbid(logits, self._forbidden)
            self._forbidden = None
        if self._penalties is not None:
            self._penalties.apply(logits)
        if self._warped is not None:
            token, raw = self._pick_warped(self._warped, logits)
        else:
            token = self._pick(logits)
        self.accept(token)
        if self._logprobs is None:
            return Sampled(token)
        logprob, top = score(raw, token, self._logprobs, self._vocab, ties=self._warped is not None)
        return Sampled(token, logprob, top)

    def accept(self, token: int) -> None:
        """Count the next token, and advance the grammar. Raises GrammarTooComplex."""
        self._count += 1
        self._penalise(token)
        if self._grammar is not None:
            self._grammar.accept(token)

    def forbid_next(self, token: int) -> None:
        """Exclude a token from the next draw, unless the grammar allows no other one."""
        self._forbidden = token

    def take_forced(self) -> list[int]:
        """The tokens that the grammar forces next, already accepted. Empty if log-probabilities are requested, which
        need logits, or if jump-forward is off."""
        if self._grammar is None or self._logprobs is not None or not self._jump_forward:
            return []
        tokens = self._grammar.forced()
        self._count += len(tokens)
        for token in tokens:
            self._penalise(token)
        return tokens

    def _penalise(self, token: int) -> None:
        """Count a token for the penalties and the watermark.

        The `warped` pipeline counts every token. Otherwise markers of a chat format, which repeat by nature, do not
        count: a penalised model could not call a tool right after an example of a call.
        """
        self._last = token
        if self._warped is not None:
            self._warped.observe(token)
        if self._penalties is not None and not self._vocab.is_markup(token):
            self._penalties.observe(token)

    def _forbid_end(self, logits: Floats) -> None:
        """Mask EOG tokens, unless the grammar allows nothing else."""
        allowed = logits if self._grammar is None else np.delete(self._grammar.mask(logits), self._eog)
        if self._grammar is None or np.isfinite(allowed.max()):
            logits[self._eog] = -np.inf

    def _forbid(self, logits: Floats, token: int) -> None:
        kept = logits[token]
        logits[token] = -np.inf
        allowed = logits if self._grammar is None else self._grammar.mask(logits)
        if not np.isfinite(allowed.max()):
            logits[token] = kept

    def _pick_warped(self, sampler: WarpedSampler, logits: Floats) -> tuple[int, Floats]:
        """The token, and the logits it was drawn from."""
        sampler.penalise(logits)
        if self._grammar is not None:
            logits = self._masked(self._grammar, logits)
        _check_finite(logits)
        warped = sampler.warp(logits)
        return sampler.draw(warped), warped

    def _pick(self, logits: Floats) -> int:
        if self._grammar is None:
            return self._choose(logits)
        if not self._mask_first:
            # Rejection sampling: a draw from all tokens, redrawn among the allowed ones if the grammar rejects it, has
            # the distribution of a draw among the allowed ones. Testing one token is far cheaper than a mask.
            token = self._choose(logits)
            if np.isfinite(logits[token]) and self._grammar.allows(token):
                return token
        return self._choose(self._masked(self._grammar, logits))

    @staticmethod
    def _masked(grammar: GrammarExecutor | GuidedExecutor, logits: Floats) -> Floats:
        masked = grammar.mask(logits)
        if not np.isfinite(masked.max()):
            _check_finite(logits)  # a damaged model is no fault of the grammar
            raise GrammarTooComplex(
                "no token of this model's vocabulary can continue the grammar", param="grammar"
            )
        return masked

    def _choose(self, logits: Floats) -> int:
        best = _check_finite(logits)
        return best if self._chain is None else self._chain.pick(logits, self._candidates)


def _check_finite(logits: Floats) -> int:
    """The most likely token. Raises EngineFailure if no logit is finite."""
    best = int(logits.argmax())
    if not np.isfinite(logits[best]):
        # llama.cpp's samplers sort: NaN would be undefined behaviour there.
        raise EngineFailure("the model computed no finite logit: its weights or its context are damaged")
    return best


def score(
    logits: Floats, token: int, count: int, vocab: Vocab, *, ties: bool = False
) -> tuple[float, tuple[TokenLogprob, ...]]:
    """Log-probability of `token` and the `count` most likely tokens, best first.

    ties: include tokens as likely as the last of them (at most 64), and leave out impossible ones.
    """
    highest = float(logits.max())
    log_total = highest + float(np.log(np.exp(logits - highest, dtype=np.float32).sum(dtype=np.float64)))
    chosen = float(logits[token]) - log_total
    count = min(count, len(logits))
    if count == 0:
        return chosen, ()
    best = np.argpartition(-logits, count - 1)[:count]
    if ties:
        best = np.flatnonzero((logits >= logits[best].min()) & (logits > -np.inf))
    best = best[np.lexsort((best, -logits[best]))][: count + _MAX_TIES]
    top = tuple(
        TokenLogprob(i, vocab.piece(i, special=True), float(logits[i]) - log_total, vocab.is_control(i))
        for i in best.tolist()
    )
    return chosen, top
