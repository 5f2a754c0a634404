"""A model with its projector that answers a question about a picture, greedily, through llama.cpp and libmtmd.

Not a server: one prompt at a time, on the CPU. Needs llama-cpp-python and numpy.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from llama_cpp import mtmd_cpp
from numpy.typing import NDArray

from models.recipe.eye.resize import Pixels

MARKER = "<__media__>"

# The bindings name types for pointers that plain ctypes values, which they take, are not.
_llama: Any = llama_cpp
_mtmd: Any = mtmd_cpp


# libmtmd tells each step of an encoding otherwise; llama-cpp-python sets such a function for libllama only.
@_llama.llama_log_callback
def _silent(level: int, text: bytes, data: object) -> None:
    """Nothing is told: a failure comes back as a value."""


_mtmd.mtmd_log_set(_silent, None)
_mtmd.mtmd_helper_log_set(_silent, None)
_MAX_ANSWER = 48
_CONTEXT = 512


class SeeingModel:
    """Raises ``FileNotFoundError`` for a missing file and ``ValueError`` where the two files do not fit."""

    def __init__(self, model: Path, projector: Path, *, threads: int = 1) -> None:
        for path in (model, projector):
            if not path.is_file():
                raise FileNotFoundError(f"no file at {path}")
        self._llama = llama_cpp.Llama(
            str(model), n_ctx=_CONTEXT, n_threads=threads, n_threads_batch=threads, verbose=False
        )
        vocab = _llama.llama_model_get_vocab(self._llama.model)
        if vocab is None:
            raise ValueError(f"{model} holds no vocabulary")
        self._vocab = vocab
        options = _mtmd.mtmd_context_params_default()
        options.use_gpu, options.n_threads = False, threads
        options.print_timings = options.warmup = False
        context = _mtmd.mtmd_init_from_file(str(projector).encode(), self._llama.model, options)
        if context is None:
            raise ValueError(f"{projector} does not fit {model}")
        self._mtmd = context

    def close(self) -> None:
        _mtmd.mtmd_free(self._mtmd)
        self._llama.close()

    def embedding(self, pixels: Pixels) -> NDArray[np.float32]:
        """What the text model reads in place of a picture of any size: (tokens, width)."""
        chunks = self._chunks(MARKER, pixels)
        try:
            for index in range(_mtmd.mtmd_input_chunks_size(chunks)):
                chunk = _mtmd.mtmd_input_chunks_get(chunks, index)
                if (
                    chunk is None
                    or _mtmd.mtmd_input_chunk_get_type(chunk) != _mtmd.MTMD_INPUT_CHUNK_TYPE_IMAGE
                ):
                    continue
                if _mtmd.mtmd_encode_chunk(self._mtmd, chunk) != 0:
                    raise RuntimeError("the picture could not be encoded")
                shape = _mtmd.mtmd_input_chunk_get_n_tokens(chunk), self._llama.n_embd()
                rows = _mtmd.mtmd_get_output_embd(self._mtmd)
                return np.array(np.ctypeslib.as_array(rows, shape), np.float32)
        finally:
            _mtmd.mtmd_input_chunks_free(chunks)
        raise RuntimeError("libmtmd made no picture of the marker")

    def answer(self, prompt: str, pixels: Pixels) -> str:
        """The continuation of a prompt in which ``MARKER`` stands for the picture."""
        llama = self._llama
        context = llama.ctx
        _llama.llama_memory_clear(_llama.llama_get_memory(context), True)
        chunks = self._chunks(prompt, pixels)
        past = ctypes.c_int32(0)
        try:
            failed = _mtmd.mtmd_helper_eval_chunks(
                self._mtmd, context, chunks, 0, 0, _CONTEXT, True, ctypes.byref(past)
            )
        finally:
            _mtmd.mtmd_input_chunks_free(chunks)
        if failed:
            raise RuntimeError("the prompt could not be computed")
        said: list[int] = []
        while len(said) < _MAX_ANSWER:
            logits = _llama.llama_get_logits_ith(context, -1)
            token = int(np.ctypeslib.as_array(logits, (llama.n_vocab(),)).argmax())
            if _llama.llama_vocab_is_eog(self._vocab, token):
                break
            said.append(token)
            single = (_llama.llama_token * 1)(token)
            if _llama.llama_decode(context, _llama.llama_batch_get_one(single, 1)):
                raise RuntimeError("the answer could not be computed")
        return llama.detokenize(said, special=True).decode("utf-8", errors="replace")

    def _chunks(self, prompt: str, pixels: Pixels) -> Any:
        height, width = pixels.shape[:2]
        data = np.ascontiguousarray(pixels).tobytes()
        buffer = (ctypes.c_uint8 * len(data)).from_buffer_copy(data)
        bitmap = _mtmd.mtmd_bitmap_init(width, height, buffer)
        chunks = _mtmd.mtmd_input_chunks_init()
        if bitmap is None or chunks is None:
            raise MemoryError("no room for a picture")
        text = prompt.encode()
        asked = _mtmd.mtmd_input_text(text, len(text), False, True)
        bitmaps = (_mtmd.mtmd_bitmap_p_ctypes * 1)(bitmap)
        try:
            if _mtmd.mtmd_tokenize(self._mtmd, chunks, ctypes.byref(asked), bitmaps, 1):
                raise ValueError("the prompt has one marker for its picture")
        finally:
            _mtmd.mtmd_bitmap_free(bitmap)
        return chunks
