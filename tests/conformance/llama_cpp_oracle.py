"""llama.cpp's grammar sampler as a judge: does a text belong to a grammar printed as GBNF."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import llama_cpp


def _ignore(_level: int, _text: bytes, _data: Any) -> None:
    """llama.cpp's log goes nowhere: it prints whole grammars."""


# llama.cpp keeps the pointer for as long as the process runs, so the callback has to live as long.
_SILENT = llama_cpp.llama_log_callback(_ignore)


class LlamaCppOracle:
    """llama.cpp's grammar sampler over the vocabulary of one GGUF file. Native code: run it where it may die."""

    def __init__(self, vocabulary: Path) -> None:
        llama_cpp.llama_backend_init()
        llama_cpp.llama_log_set(_SILENT, ctypes.c_void_p(0))
        parameters = llama_cpp.llama_model_default_params()
        parameters.vocab_only = True
        self._model: Any = llama_cpp.llama_model_load_from_file(str(vocabulary).encode(), parameters)
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {vocabulary}")
        self._vocab: Any = llama_cpp.llama_model_get_vocab(self._model)
        self._end = int(llama_cpp.llama_vocab_eos(self._vocab))
        self._data = (llama_cpp.llama_token_data * 1)()
        self._one = llama_cpp.llama_token_data_array(data=self._data, size=1, selected=-1, sorted=False)

    def compile(self, gbnf: str) -> Any:
        """A sampler, to be handed to `release`. Raises ValueError where llama.cpp refuses the grammar."""
        sampler = llama_cpp.llama_sampler_init_grammar(self._vocab, gbnf.encode(), b"root")
        if not sampler:
            raise ValueError("llama.cpp refuses the grammar")
        return sampler

    def release(self, sampler: Any) -> None:
        llama_cpp.llama_sampler_free(sampler)

    def accepts(self, sampler: Any, text: str) -> bool:
        """Whether the sampler takes the text token by token and may end after it."""
        llama_cpp.llama_sampler_reset(sampler)
        for token in self._tokens(text):
            if not self._allows(sampler, token):
                return False
            llama_cpp.llama_sampler_accept(sampler, token)
        return self._allows(sampler, self._end)

    def _tokens(self, text: str) -> list[int]:
        raw = text.encode()
        buffer = (ctypes.c_int32 * (len(raw) + 8))()
        count = llama_cpp.llama_tokenize(self._vocab, raw, len(raw), buffer, len(buffer), False, False)
        if count < 0:
            raise RuntimeError("the token buffer is too small")
        return list(buffer[:count])

    def _allows(self, sampler: Any, token: int) -> bool:
        self._data[0].id, self._data[0].logit, self._data[0].p = token, 0.0, 0.0
        self._one.size, self._one.selected, self._one.sorted = 1, -1, False
        one: Any = ctypes.byref(self._one)
        llama_cpp.llama_sampler_apply(sampler, one)
        return self._data[0].logit > -1e30
