"""Picks the next token of one sequence from its logits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from jan_serve.core.events import TokenLogprob
from jan_serve.core.sampling import SamplingParams, StopConditions
from jan_serve.engine.constraint.grammar_executor import GrammarExecutor
from jan_serve.engine.llama.chain import Candidates, SamplerChain, has_penalties
from jan_serve.engine.llama.vocab import Vocab
from jan_serve.engine.tgi_sampling import TgiSampler
from jan_serve.engine.tokens import Tokens
from jan_serve.errors import EngineFailure, GrammarTooComplex
from jan_serve.text.watermark import green_tokens

Floats = npt.NDArray[np.float32]

_MOST_TIES = 64
_SEEDS = 0xFFFFFFFF  # llama.cpp seeds are uint32, and the last one asks for a random one


@dataclass(frozen=True, slots=True)
class Sampled:
    """A picked token. logprob and top are only computed when they were asked for: of the raw logits, or with the `tgi`
    pipeline of those that the token was drawn from."""

    token: int
    logprob: float | None = None
    top: tuple[TokenLogprob, ...] = ()


class Sampler:
    """Sampling state of one sequence; nothing in it is shared with another but the scratch array of candidates.

    The logits row given to `sample` is changed in place (biases, masks).
    """

    def __init__(
        self,
        params: SamplingParams,
        stopping: StopConditions,
        seed: int,
        vocab: Vocab,
        n_ctx: int,
        candidates: Candidates,
        *,
        logprobs: int | None,
        grammar: GrammarExecutor | None,
        jump_forward: bool = True,
    ) -> None:
        self._jump_forward = jump_forward
        self._vocab = vocab
        self._candidates = candidates
        self._logprobs = logprobs
        self._grammar = grammar
        self._mask_first = params.mirostat_mode != 0 and params.temperature > 0.0
        self._eog = np.array(vocab.eog_ids, np.int64)
        self._min_tokens = stopping.min_tokens
        self._ignore_eos = stopping.ignore_eos
        self._bias_ids = np.array(list(params.logit_bias.keys()), np.int64)
        self._bias = np.array(list(params.logit_bias.values()), np.float32)
        self._count = 0
        self._chain: SamplerChain | None = None
        self._has_penalties = has_penalties(params)
        self._watermark = params.watermark
        self._last: int | None = None
        self._warper: TgiSampler | None = None
        if params.pipeline == "tgi":
            self._warper = TgiSampler(params, seed, vocab.n_tokens)
        elif params.temperature > 0.0 or self._has_penalties:
            self._chain = SamplerChain(params, seed % _SEEDS, vocab.n_tokens, n_ctx, vocab=vocab)
        self._window = params.repeat_last_n

    @property
    def is_complete(self) -> bool:
        """Whether the grammar allows nothing more."""
        return self._grammar is not None and self._grammar.is_complete

    def observe_prompt(self, tokens: Tokens) -> None:
        """Penalties look back into the prompt, the watermark on its last token."""
        self._last = int(tokens[-1]) if len(tokens) else None
        if self._warper is not None:
            self._warper.observe_prompt(tokens)
        if self._chain is None or not self._has_penalties:
            return
        tail = tokens if self._window < 0 else tokens[max(0, len(tokens) - self._window) :]
        for token in tail.tolist():
            self._penalise(token)

    def sample(self, logits: Floats) -> Sampled:
        """Pick and accept the next token. Raises GrammarTooComplex when the grammar cannot go on."""
        raw = logits.copy() if self._logprobs is not None and self._warper is None else logits
        self._mark(logits)
        if len(self._bias_ids):
            logits[self._bias_ids] += self._bias
        if self._ignore_eos or self._count < self._min_tokens:
            self._forbid_end(logits)
        if self._warper is not None:
            token, raw = self._pick_warped(self._warper, logits)
        else:
            token = self._pick(logits)
        self._count += 1
        self._penalise(token)
        if self._grammar is not None:
            self._grammar.accept(token)
        if self._logprobs is None:
            return Sampled(token)
        logprob, top = score(raw, token, self._logprobs, self._vocab, ties=self._warper is not None)
        return Sampled(token, logprob, top)

    def take_forced(self) -> list[int]:
        """Tokens that the grammar leaves no choice about, accepted already.

        None when log-probabilities are wanted, whose logits are not looked at, or when all is to be sampled.
        """
        if self._grammar is None or self._logprobs is not None or not self._jump_forward:
            return []
        tokens = self._grammar.forced()
        self._count += len(tokens)
        for token in tokens:
            self._penalise(token)
        return tokens

    def _penalise(self, token: int) -> None:
        """Count a token for the penalties and the watermark. The `tgi` pipeline counts everything; else markers of a
        format are left out, which repeat by nature: a model that is kept from them cannot call a tool right after it
        was shown how.
        """
        self._last = token
        if self._warper is not None:
            self._warper.observe(token)
        if self._chain is not None and not (self._has_penalties and self._vocab.is_markup(token)):
            self._chain.accept(token)

    def _mark(self, logits: Floats) -> None:
        mark = self._watermark
        if mark is not None and self._last is not None:
            green = green_tokens(len(logits), self._last, mark.gamma)
            logits += green.astype(np.float32) * np.float32(mark.delta)

    def _forbid_end(self, logits: Floats) -> None:
        """No EOG token, unless a grammar leaves nothing else."""
        if self._grammar is not None and not np.isfinite(
            np.delete(self._grammar.mask(logits), self._eog).max()
        ):
            return
        logits[self._eog] = -np.inf

    def _pick_warped(self, warper: TgiSampler, logits: Floats) -> tuple[int, Floats]:
        """The token, and the logits that it was drawn from."""
        warper.penalise(logits)
        if self._grammar is not None:
            logits = self._masked(self._grammar, logits)
        _check_finite(logits)
        warped = warper.warp(logits)
        return warper.draw(warped), warped

    def _pick(self, logits: Floats) -> int:
        if self._grammar is None:
            return self._choose(logits)
        if not self._mask_first:
            # A token drawn from all and kept if the grammar allows it, otherwise redrawn among the allowed ones, has
            # the distribution of a draw among the allowed ones; the test is far cheaper than the mask.
            token = self._choose(logits)
            if np.isfinite(logits[token]) and self._grammar.allows(token):
                return token
        return self._choose(self._masked(self._grammar, logits))

    @staticmethod
    def _masked(grammar: GrammarExecutor, logits: Floats) -> Floats:
        masked = grammar.mask(logits)
        if not np.isfinite(masked.max()):
            raise GrammarTooComplex(
                "no token of this model's vocabulary can continue the grammar", param="grammar"
            )
        return masked

    def _choose(self, logits: Floats) -> int:
        best = _check_finite(logits)
        return best if self._chain is None else self._chain.pick(logits, self._candidates)


def _check_finite(logits: Floats) -> int:
    """The most likely token. Raises EngineFailure where there is none."""
    best = int(logits.argmax())
    if not np.isfinite(logits[best]):
        # llama.cpp's samplers sort: NaN would be undefined behaviour there.
        raise EngineFailure("the model computed no finite logit: its weights or its context are damaged")
    return best


def score(
    logits: Floats, token: int, count: int, vocab: Vocab, *, ties: bool = False
) -> tuple[float, tuple[TokenLogprob, ...]]:
    """Log-probability of `token` and the `count` most likely tokens, best first.

    ties: others that are as likely as the last of them too (64 at most), and none that is impossible.
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
    best = best[np.lexsort((best, -logits[best]))][: count + _MOST_TIES]
    top = tuple(
        TokenLogprob(i, vocab.piece(i, special=True), float(logits[i]) - log_total, vocab.is_control(i))
        for i in best.tolist()
    )
    return chosen, top
