"""llama.cpp sampler chains over one shared array of candidates."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from jan_serve.core.sampling import SamplingParams
from jan_serve.engine.llama.bindings import lib
from jan_serve.engine.llama.vocab import Vocab
from jan_serve.errors import InvalidGrammar

Floats = npt.NDArray[np.float32]

_MIROSTAT_M = 100  # candidates that mirostat 1.0 estimates from, as in llama.cpp's common code
_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])  # llama_token_data


class Candidates:
    """A `llama_token_data_array` of the whole vocabulary, filled anew for each use. One per engine thread."""

    def __init__(self, n_vocab: int) -> None:
        self._template = np.zeros(n_vocab, _CANDIDATE)
        self._template["id"] = np.arange(n_vocab, dtype=np.int32)
        self._data = self._template.copy()
        self._pointer = self._data.ctypes.data_as(lib.llama_token_data_p)
        self.raw = lib.llama_token_data_array(self._pointer, n_vocab, -1, False)
        self.reference = ctypes.byref(self.raw)

    def fill(self, logits: Floats) -> None:
        """Take the logits of every token, in order."""
        self._data[:] = self._template
        self._data["logit"] = logits
        self._reset(len(self._data))

    def fill_only(self, token: int) -> None:
        """Hold one token, with logit 0: to ask a grammar about it."""
        self._data[0] = (token, 0.0, 0.0)
        self._reset(1)

    def _reset(self, size: int) -> None:
        self.raw.data = self._pointer
        self.raw.size = size
        self.raw.selected = -1
        self.raw.sorted = False

    @property
    def selected(self) -> int:
        """The token that the last sampler of a chain picked."""
        return int(self.raw.data[self.raw.selected].id)

    @property
    def first_is_allowed(self) -> bool:
        """After fill_only and a grammar: whether the token is still possible."""
        return bool(self.raw.data[0].logit > -np.inf)

    def allowed(self) -> Floats:
        """After fill and a grammar: the logits by token id, -inf where refused. Shape (n_vocab,)."""
        out = np.full(len(self._data), -np.inf, np.float32)
        out[self._data["id"]] = self._data["logit"]
        return out


class SamplerChain:
    """Penalties, then truncation, temperature and the draw: llama-cpp-python's order. Freed with the object."""

    def __init__(self, params: SamplingParams, seed: int, n_vocab: int, n_ctx: int) -> None:
        self._pointer: Any = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        window = n_ctx if params.repeat_last_n < 0 else params.repeat_last_n
        if has_penalties(params):
            self._add(
                lib.llama_sampler_init_penalties(
                    n_vocab, window, params.repeat_penalty, params.frequency_penalty, params.presence_penalty
                )
            )
        if params.temperature <= 0.0:
            self._add(lib.llama_sampler_init_greedy())
        elif params.mirostat_mode == 1:
            self._add(lib.llama_sampler_init_temp(params.temperature))
            self._add(
                lib.llama_sampler_init_mirostat(
                    n_vocab, seed, params.mirostat_tau, params.mirostat_eta, _MIROSTAT_M
                )
            )
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

    def _add(self, sampler: Any) -> None:
        lib.llama_sampler_chain_add(self._pointer, sampler)

    def pick(self, candidates: Candidates) -> int:
        """Run the chain over the candidates and return its choice. Does not accept it."""
        lib.llama_sampler_apply(self._pointer, candidates.reference)
        return candidates.selected

    def accept(self, token: int) -> None:
        """Tell penalties about a token of the prompt or the completion."""
        lib.llama_sampler_accept(self._pointer, token)

    def __del__(self) -> None:
        pointer = getattr(self, "_pointer", None)
        if pointer:
            lib.llama_sampler_free(pointer)
            self._pointer = None


class GrammarSampler:
    """llama.cpp's own grammar sampler. Native code that cannot be interrupted, and may hang on hostile grammars."""

    def __init__(self, vocab: Vocab, gbnf: str) -> None:
        """Raises InvalidGrammar when llama.cpp does not accept the text."""
        self._pointer: Any = lib.llama_sampler_init_grammar(vocab.pointer, gbnf.encode("utf-8"), b"root")
        if not self._pointer:
            raise InvalidGrammar("llama.cpp does not accept this grammar")

    def allows(self, token: int, candidates: Candidates) -> bool:
        """Whether the token may come next."""
        candidates.fill_only(token)
        lib.llama_sampler_apply(self._pointer, candidates.reference)
        return candidates.first_is_allowed

    def mask(self, logits: Floats, candidates: Candidates) -> Floats:
        """The logits with every refused token at -inf. Shape (n_vocab,)."""
        candidates.fill(logits)
        lib.llama_sampler_apply(self._pointer, candidates.reference)
        return candidates.allowed()

    def accept(self, token: int) -> None:
        """Advance by a token that `allows` allowed: llama.cpp aborts the process on any other."""
        lib.llama_sampler_accept(self._pointer, token)

    def __del__(self) -> None:
        pointer = getattr(self, "_pointer", None)
        if pointer:
            lib.llama_sampler_free(pointer)
            self._pointer = None


def has_penalties(params: SamplingParams) -> bool:
    """Whether any penalty would change a logit."""
    return params.repeat_last_n != 0 and (
        params.repeat_penalty != 1.0 or params.frequency_penalty != 0.0 or params.presence_penalty != 0.0
    )
