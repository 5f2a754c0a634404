"""llama.cpp sampler chains over one shared array of candidates."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from jan_serve.core.request import SamplingParams
from jan_serve.engine.llama.bindings import lib
from jan_serve.engine.llama.vocab import Vocab

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.intp]

_MIROSTAT_M = 100  # candidates that mirostat 1.0 estimates from, as in llama.cpp's common code
_WORDS = 3  # a llama_token_data is three 32-bit words: id, logit, probability
_BLOCK = 256
_COIN = np.zeros(2, np.float32)


def likely_ids(logits: Floats, count: int) -> Ids:
    """Ids, in order, of a superset of the tokens with the `count` largest logits; usually a few times as many. The
    bound is the count-th largest of the maxima of all blocks of 256, each a column of the logits as rows: at least
    `count` tokens reach it."""
    whole = len(logits) // _BLOCK * _BLOCK
    maxima = logits[:whole].reshape(_BLOCK, -1).max(axis=0)
    bound = -np.inf if count > len(maxima) else np.partition(maxima, len(maxima) - count)[len(maxima) - count]
    return np.flatnonzero(logits > bound if bound == -np.inf else logits >= bound)


class Candidates:
    """A `llama_token_data_array` for a whole vocabulary, refilled for each use. One per engine thread."""

    def __init__(self, n_vocab: int) -> None:
        self._words = np.zeros((n_vocab, _WORDS), np.int32)
        self._ids = self._words[:, 0]
        self._logits = self._words.view(np.float32)[:, 1]
        self._range = np.arange(n_vocab, dtype=np.int32)
        pointer_to: Any = ctypes.POINTER
        self._pointer = ctypes.cast(self._words.ctypes.data, pointer_to(lib.llama_token_data))
        self.raw = lib.llama_token_data_array(self._pointer, n_vocab, -1, False)
        self.reference = ctypes.byref(self.raw)

    def fill(self, logits: Floats) -> None:
        self._ids[:] = self._range
        self._logits[:] = logits
        self._reset(len(self._words))

    def fill_some(self, logits: Floats, ids: Ids) -> None:
        size = len(ids)
        self._ids[:size] = ids
        self._logits[:size] = logits[ids]
        self._reset(size)

    def _reset(self, size: int) -> None:
        self.raw.data = self._pointer
        self.raw.size = size
        self.raw.selected = -1
        self.raw.sorted = False

    @property
    def selected(self) -> int:
        """The token that the last sampler of the chain picked."""
        return int(self.raw.data[self.raw.selected].id)


class SamplerChain:
    """Truncation, temperature and the draw: llama-cpp-python's order. Freed with the object."""

    def __init__(
        self, params: SamplingParams, seed: int, n_vocab: int, *, vocab: Vocab | None = None
    ) -> None:
        """params: of a temperature above 0. vocab: used by the infill sampler only."""
        self._vocab = vocab
        self._pointer: Any = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        self.draws = 0  # random numbers used so far, if it draws at all
        self._last: Any = None
        self._keeps = 0 if params.mirostat_mode else params.top_k
        if params.mirostat_mode == 1:
            self._add(lib.llama_sampler_init_temp(params.temperature))
            tau, eta = params.mirostat_tau, params.mirostat_eta
            self._add(lib.llama_sampler_init_mirostat(n_vocab, seed, tau, eta, _MIROSTAT_M))
        elif params.mirostat_mode == 2:
            self._add(lib.llama_sampler_init_temp(params.temperature))
            self._add(lib.llama_sampler_init_mirostat_v2(seed, params.mirostat_tau, params.mirostat_eta))
        else:
            self._add_truncation(params)
            self._add(lib.llama_sampler_init_temp(params.temperature))
            self._add(lib.llama_sampler_init_dist(seed))

    def _add_truncation(self, params: SamplingParams) -> None:
        if params.top_k > 0:
            self._add(lib.llama_sampler_init_top_k(params.top_k))
        if params.typical_p < 1.0:
            self._add(lib.llama_sampler_init_typical(params.typical_p, 1))
        if params.top_p < 1.0:
            self._add(lib.llama_sampler_init_top_p(params.top_p, 1))
        if params.min_p > 0.0:
            self._add(lib.llama_sampler_init_min_p(params.min_p, 1))
        if params.infill and self._vocab is not None:
            self._add(lib.llama_sampler_init_infill(self._vocab.pointer))

    def _add(self, sampler: Any) -> None:
        lib.llama_sampler_chain_add(self._pointer, sampler)
        self._last = sampler

    def skip(self, draws: int) -> None:
        """Use up random numbers, as `pick` does. Mirostat, which also adapts to what it picked, cannot skip."""
        self.draws += draws
        coin = Candidates(2)
        for _ in range(draws):
            coin.fill(_COIN)
            lib.llama_sampler_apply(self._last, coin.reference)

    def pick(self, logits: Floats, candidates: Candidates) -> int:
        """Run the chain over the logits, shape (n_vocab,), and return the chosen token."""
        if not self._keeps or self._keeps > len(logits) // _BLOCK:  # `likely_ids` would find them all
            candidates.fill(logits)
        else:
            candidates.fill_some(logits, likely_ids(logits, self._keeps))
        lib.llama_sampler_apply(self._pointer, candidates.reference)
        self.draws += 1
        return candidates.selected

    def __del__(self) -> None:
        pointer = getattr(self, "_pointer", None)
        if pointer:
            lib.llama_sampler_free(pointer)
            self._pointer = None
