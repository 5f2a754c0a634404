"""What libmtmd's own helper computes for a prompt with images or sound: the reference for the engine's batches."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jan_serve.core.messages import AudioPiece, ImagePiece
from jan_serve.engine.llama import backend
from jan_serve.engine.llama.context import LlamaContext
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.engine.llama.threads import ThreadPool


def helper_logprobs(
    text_model: Path, projector: Path, prompt: Sequence[str | ImagePiece | AudioPiece]
) -> npt.NDArray[np.float64]:
    """Log-probabilities of the token after the prompt, by `mtmd_helper_eval_chunks`, in single precision throughout."""
    lib: Any = importlib.import_module("llama_cpp.mtmd_cpp")
    pointer_to: Any = ctypes.POINTER
    backend.start()
    backend.log_to(lib.mtmd_helper_log_set)
    model = LlamaModel(str(text_model))
    params = lib.mtmd_context_params_default()
    params.use_gpu, params.n_threads = False, 1
    mtmd = lib.mtmd_init_from_file(str(projector).encode(), model.pointer, params)
    assert mtmd
    texts: list[Any] = []
    parts: list[Any] = []
    for piece in prompt:
        if isinstance(piece, str):
            data = piece.encode()
            texts.append(lib.mtmd_input_text(data, len(data), False, True))
            parts.append(lib.mtmd_input_part(ctypes.pointer(texts[-1]), None))
        elif isinstance(piece, AudioPiece):
            samples: Any = ctypes.cast(ctypes.c_char_p(piece.samples), pointer_to(ctypes.c_float))
            bitmap = lib.mtmd_bitmap_init_from_audio(len(piece.samples) // 4, samples)
            parts.append(lib.mtmd_input_part(None, bitmap))
        else:
            pixels: Any = ctypes.cast(ctypes.c_char_p(piece.pixels), pointer_to(ctypes.c_uint8))
            parts.append(lib.mtmd_input_part(None, lib.mtmd_bitmap_init(piece.width, piece.height, pixels)))
    chunks = lib.mtmd_input_chunks_init()
    array = (pointer_to(lib.mtmd_input_part) * len(parts))(*[ctypes.pointer(part) for part in parts])
    assert lib.mtmd_tokenize_from_parts(mtmd, chunks, array, len(parts), False) == 0
    context = LlamaContext(
        model,
        n_ctx=512,
        n_batch=512,
        n_ubatch=512,
        n_seq_max=1,
        threads=ThreadPool(1),
        flash_attn="off",
        type_k="f32",
        type_v="f32",
    )
    end = ctypes.c_int32()
    assert lib.mtmd_helper_eval_chunks(mtmd, context.pointer, chunks, 0, 0, 512, True, ctypes.byref(end)) == 0
    logits = context.logits(-1).astype(np.float64)
    lib.mtmd_input_chunks_free(chunks)
    for part in parts:
        if part.bitmap:
            lib.mtmd_bitmap_free(part.bitmap)
    context.close()
    lib.mtmd_free(mtmd)
    model.close()
    highest = logits.max()
    return logits - highest - np.log(np.exp(logits - highest).sum())
