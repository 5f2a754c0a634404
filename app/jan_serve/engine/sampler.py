"""Picks the next token of one sequence from its logits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from jan_serve.core.events import TokenLogprob
from jan_serve.core.sampling import SamplingParams, StopConditions
from jan_serve.engine.grammar import GrammarExecutor
from jan_serve.engine.llama.chain import Candidates, SamplerChain, has_penalties
from jan_serve.engine.llama.vocab import Vocab
from jan_serve.engine.tokens import Tokens
from jan_serve.errors import EngineFailure, GrammarTooComplex

Floats = npt.NDArray[np.float32]

_SEEDS = 0xFFFFFFFF  # llama.cpp seeds are uint32, and the last one asks for a random one


@dataclass(frozen=True, slots=True)
class Sampled:
    """A picked token. logprob and top are of the raw logits, and only computed when they were asked for."""

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
    ) -> None:
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
        if params.temperature > 0.0 or self._has_penalties:
            self._chain = SamplerChain(params, seed % _SEEDS, vocab.n_tokens, n_ctx, vocab=vocab)
        self._window = params.repeat_last_n

    @property
    def is_complete(self) -> bool:
        """Whether the grammar allows nothing more."""
        return self._grammar is not None and self._grammar.is_complete

    def observe_prompt(self, tokens: Tokens) -> None:
        """Penalties look back into the prompt; tell them its end."""
        if self._chain is None or not self._has_penalties:
            return
        tail = tokens if self._window < 0 else tokens[max(0, len(tokens) - self._window) :]
        for token in tail.tolist():
            self._penalise(token)

    def sample(self, logits: Floats) -> Sampled:
        """Pick and accept the next token. Raises GrammarTooComplex when the grammar cannot go on."""
        raw = logits.copy() if self._logprobs is not None else logits
        if len(self._bias_ids):
            logits[self._bias_ids] += self._bias
        if self._ignore_eos or self._count < self._min_tokens:
            self._forbid_end(logits)
        token = self._pick(logits)
        self._count += 1
        self._penalise(token)
        if self._grammar is not None:
            self._grammar.accept(token)
        if self._logprobs is None:
            return Sampled(token)
        logprob, top = score(raw, token, self._logprobs, self._vocab)
        return Sampled(token, logprob, top)

    def take_forced(self) -> list[int]:
        """Tokens that the grammar leaves no choice about, accepted already.

        None when log-probabilities are wanted: their logits are not looked at.
        """
        if self._grammar is None or self._logprobs is not None:
            return []
        tokens = self._grammar.forced()
        self._count += len(tokens)
        for token in tokens:
            self._penalise(token)
        return tokens

    def _penalise(self, token: int) -> None:
        """Count a token for the penalties. Markers of a format repeat by nature: a model that is kept from them cannot
        call a tool right after it was shown how."""
        if self._chain is not None and not (self._has_penalties and self._vocab.is_markup(token)):
            self._chain.accept(token)

    def _forbid_end(self, logits: Floats) -> None:
        """No EOG token, unless a grammar leaves nothing else."""
        if self._grammar is not None and not np.isfinite(
            np.delete(self._grammar.mask(logits), self._eog).max()
        ):
            return
        logits[self._eog] = -np.inf

    def _pick(self, logits: Floats) -> int:
        if self._grammar is None:
            return self._choose(logits)
        if not self._mask_first:
            # A token drawn from all and kept if the grammar allows it, otherwise redrawn among the allowed ones, has
            # the distribution of a draw among the allowed ones; the test is far cheaper than the mask.
            token = self._choose(logits)
            if np.isfinite(logits[token]) and self._grammar.allows(token):
                return token
        masked = self._grammar.mask(logits)
        if not np.isfinite(masked.max()):
            raise GrammarTooComplex(
                "no token of this model's vocabulary can continue the grammar", param="grammar"
            )
        return self._choose(masked)

    def _choose(self, logits: Floats) -> int:
        best = int(logits.argmax())
        if not np.isfinite(logits[best]):
            # llama.cpp's samplers sort: NaN would be undefined behaviour there.
            raise EngineFailure("the model computed no finite logit: its weights or its context are damaged")
        return best if self._chain is None else self._chain.pick(logits, self._candidates)


def score(logits: Floats, token: int, count: int, vocab: Vocab) -> tuple[float, tuple[TokenLogprob, ...]]:
    """Log-probability of `token` and the `count` most likely tokens, best first, from raw logits."""
    highest = float(logits.max())
    log_total = highest + float(np.log(np.exp(logits - highest, dtype=np.float32).sum(dtype=np.float64)))
    chosen = float(logits[token]) - log_total
    count = min(count, len(logits))
    if count == 0:
        return chosen, ()
    best = np.argpartition(-logits, count - 1)[:count]
    best = best[np.lexsort((best, -logits[best]))]
    top = tuple(
        TokenLogprob(int(i), vocab.piece(int(i), special=True), float(logits[i]) - log_total)
        for i in best.tolist()
    )
    return chosen, top
