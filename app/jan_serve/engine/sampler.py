"""Picks the next token of one sequence from its logits."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from jan_serve.core.events import TokenLogprob
from jan_serve.engine.constraint.grammar_executor import GrammarExecutor
from jan_serve.engine.constraint.guide import GuidedExecutor
from jan_serve.engine.llama.chain import Candidates, SamplerChain, has_penalties
from jan_serve.engine.llama.vocab import Vocab
from jan_serve.engine.tokens import Tokens
from jan_serve.engine.warped_sampling import WarpedSampler
from jan_serve.errors import EngineFailure, GrammarTooComplex
from jan_serve.ipc.messages import EngineRequest
from jan_serve.text.watermark import green_tokens

Floats = npt.NDArray[np.float32]

_MAX_TIES = 64
_SEEDS = 0xFFFFFFFF  # llama.cpp's seeds are uint32; the largest one requests a random seed


class Sampled(msgspec.Struct, frozen=True):
    """A sampled token. logprob and top are computed on request only: of the raw logits, or in the `warped` pipeline of
    those that the token was drawn from."""

    token: int
    logprob: float | None = None
    top: tuple[TokenLogprob, ...] = ()


class Sampler:
    """Sampling state of one sequence. Only the scratch array of candidates is shared with others.

    `sample` changes its row of logits in place (biases, masks).
    """

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
    ) -> None:
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
        self._has_penalties = has_penalties(params)
        self._watermark = params.watermark
        self._last: int | None = None
        self._warped: WarpedSampler | None = None
        if params.pipeline == "warped":
            self._warped = WarpedSampler(params, seed, vocab.n_tokens)
        elif params.temperature > 0.0 or self._has_penalties:
            self._chain = SamplerChain(params, seed % _SEEDS, vocab.n_tokens, n_ctx, vocab=vocab)
        self._window = params.repeat_last_n

    @property
    def is_complete(self) -> bool:
        """Whether the grammar allows nothing more."""
        return self._grammar is not None and self._grammar.is_complete

    def observe_prompt(self, tokens: Tokens) -> None:
        """Count the prompt for the penalties, and its last token for the watermark."""
        self._last = int(tokens[-1]) if len(tokens) else None
        if self._warped is not None:
            self._warped.observe_prompt(tokens)
        if self._chain is None or not self._has_penalties:
            return
        tail = tokens if self._window < 0 else tokens[max(0, len(tokens) - self._window) :]
        for token in tail.tolist():
            self._penalise(token)

    def sample(self, logits: Floats) -> Sampled:
        """Sample and accept the next token. Raises GrammarTooComplex if no token can continue the grammar."""
        raw = logits.copy() if self._logprobs is not None and self._warped is None else logits
        self._add_watermark(logits)
        if len(self._bias_ids):
            logits[self._bias_ids] += self._bias
        if self._ignore_eos or self._count < self._min_tokens:
            self._forbid_end(logits)
        if self._warped is not None:
            token, raw = self._pick_warped(self._warped, logits)
        else:
            token = self._pick(logits)
        self._count += 1
        self._penalise(token)
        if self._grammar is not None:
            self._grammar.accept(token)
        if self._logprobs is None:
            return Sampled(token)
        logprob, top = score(raw, token, self._logprobs, self._vocab, ties=self._warped is not None)
        return Sampled(token, logprob, top)

    def take_forced(self) -> list[int]:
        """The tokens that the grammar forces next, already accepted.

        Empty if log-probabilities are requested, which need logits, or if jump-forward is off.
        """
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
        if self._chain is not None and not (self._has_penalties and self._vocab.is_markup(token)):
            self._chain.accept(token)

    def _add_watermark(self, logits: Floats) -> None:
        watermark = self._watermark
        if watermark is not None and self._last is not None:
            green = green_tokens(len(logits), self._last, watermark.gamma)
            logits += green.astype(np.float32) * np.float32(watermark.delta)

    def _forbid_end(self, logits: Floats) -> None:
        """Mask EOG tokens, unless the grammar allows nothing else."""
        if self._grammar is not None and not np.isfinite(
            np.delete(self._grammar.mask(logits), self._eog).max()
        ):
            return
        logits[self._eog] = -np.inf

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
