"""The random projectors: the same bytes for a seed, and what libmtmd makes of them."""

from __future__ import annotations

import ctypes
import importlib
from pathlib import Path
from typing import Any, get_args

import pytest

from models.recipe.fixtures import write_tiny_llama
from models.recipe.projector_fixtures import ProjectorKind, write_tiny_projector, write_tiny_qwen2vl

# Width, height, cells, positions.
LAYOUTS: dict[ProjectorKind, tuple[tuple[int, int, int, int], ...]] = {
    "mlp": ((40, 30, 16, 16), (1, 300, 16, 16)),
    "gemma3": ((40, 30, 9, 9), (1, 300, 9, 9)),
    "qwen2vl_merger": ((40, 30, 12, 4), (280, 140, 50, 10)),
}


@pytest.mark.parametrize("kind", get_args(ProjectorKind))
def test_a_seed_decides_the_bytes(tmp_path: Path, kind: ProjectorKind) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_tiny_projector(tmp_path / name, kind, seed=seed)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b != c


@pytest.mark.parametrize("kind", get_args(ProjectorKind))
def test_libmtmd_reads_it_and_lays_an_image_out(tmp_path: Path, kind: ProjectorKind) -> None:
    from jan_serve.engine.llama import backend
    from jan_serve.engine.llama.model import LlamaModel

    pointer_to: Any = ctypes.POINTER
    mtmd_cpp: Any = importlib.import_module("llama_cpp.mtmd_cpp")
    text, projector = tmp_path / "text.gguf", tmp_path / "mmproj.gguf"
    (write_tiny_qwen2vl if kind == "qwen2vl_merger" else write_tiny_llama)(text)
    write_tiny_projector(projector, kind)
    backend.start()
    model = LlamaModel(str(text))
    params = mtmd_cpp.mtmd_context_params_default()
    params.use_gpu, params.warmup = False, False
    context = mtmd_cpp.mtmd_init_from_file(str(projector).encode(), model.pointer, params)
    assert context
    is_dynamic = kind == "qwen2vl_merger"
    assert mtmd_cpp.mtmd_decode_use_mrope(context) == is_dynamic
    assert mtmd_cpp.mtmd_decode_use_non_causal(context, None) == (kind == "gemma3")
    for width, height, cells, positions in LAYOUTS[kind]:
        bitmap = mtmd_cpp.mtmd_bitmap_init(width, height, None)
        part = mtmd_cpp.mtmd_input_part(None, bitmap)
        chunks = mtmd_cpp.mtmd_input_chunks_init()
        array = (pointer_to(mtmd_cpp.mtmd_input_part) * 1)(ctypes.pointer(part))
        assert mtmd_cpp.mtmd_tokenize_from_parts(context, chunks, array, 1, False) == 0
        found = [
            mtmd_cpp.mtmd_input_chunks_get(chunks, i) for i in range(mtmd_cpp.mtmd_input_chunks_size(chunks))
        ]
        [image] = [chunk for chunk in found if mtmd_cpp.mtmd_input_chunk_get_type(chunk) == 1]
        assert mtmd_cpp.mtmd_input_chunk_get_n_tokens(image) == cells
        assert mtmd_cpp.mtmd_input_chunk_get_n_pos(image) == positions
        mtmd_cpp.mtmd_input_chunks_free(chunks)
        mtmd_cpp.mtmd_bitmap_free(bitmap)
    mtmd_cpp.mtmd_free(context)
    model.close()
