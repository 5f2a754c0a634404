"""Writes a model of random weights to measure with, with the shape, size and vocabulary size of Qwen2.5-0.5B.

    python -m benchmarks.bench_model build/bench/bench.gguf
    python -m benchmarks.bench_model build/bench/k-quants.gguf --shape k-quants
    python -m benchmarks.bench_model build/bench/experts.gguf --shape gpt-oss-20b --weights MXFP4
    python -m benchmarks.bench_model build/bench/mtp.gguf --shape mtp

What it says means nothing; what it costs is what a real model of the shape costs. Q4_K_M, like most that people run.
The width of the small one lets llama.cpp take K-quants for few of its tensors; in the other shape all have some.
Shapes with the names of larger models have few of their layers (`shapes.py`).
``mtp`` is a mixture of 0.4 B with a head for further tokens that is right about 7 tokens of 10; Q8_0.
"""

from __future__ import annotations

import ctypes
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import gguf
import llama_cpp
import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.shapes import SHAPES, Shape
from models.recipe.chat_template import CHAT_TEMPLATE
from models.recipe.gguf_file import add_bpe_vocabulary, gguf_writer
from models.recipe.mtp_fixtures import write_tiny_mtp
from models.recipe.vocabulary import Vocabulary

_BUILTIN = Path(__file__).resolve().parent.parent / "models" / "builtin" / "jan-tiny.gguf"
_KNOWN = 0.7
_EXPERTS_DIMS = 3
_DECAY = -0.05
"""Decay of a delta net's state."""
FILE_TYPES: Final = {
    **{"Q4_K_M": 15, "Q3_K_M": 12, "Q2_K": 10, "IQ4_XS": 30, "IQ3_S": 26},
    **{"MXFP4": 38, "Q8_0": 7},
}
"""Types of llama.cpp's quantiser (enum llama_ftype)."""


def write_bench_model(path: Path, shape: Shape, *, weights: str = "Q4_K_M", seed: int = 0) -> None:
    """Write the quantised file; blocks for about a minute at full size, and needs 1 to 3 GB more of disk meanwhile.

    Raises OSError, ValueError where the vocabulary is too small, RuntimeError where llama.cpp cannot quantise.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        halves = Path(folder) / "f16.gguf"
        _write_halves(halves, shape, seed)
        params = llama_cpp.llama_model_quantize_default_params()
        params.ftype = FILE_TYPES[weights]
        status = llama_cpp.llama_model_quantize(
            str(halves).encode(), str(path).encode(), ctypes.pointer(params)
        )
        if status != 0:
            raise RuntimeError(f"llama.cpp could not quantise {halves} (status {status})")


def _write_halves(path: Path, shape: Shape, seed: int) -> None:
    sizes = shape.n_ctx, shape.n_embd, shape.n_layer
    writer = gguf_writer(path, shape.architecture, sizes, n_ff=shape.n_ff, n_head=shape.n_head)
    writer.add_name("bench")
    shape.add_keys(writer)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_chat_template(CHAT_TEMPLATE)
    add_bpe_vocabulary(writer, _vocabulary(shape.n_vocab))
    random = np.random.default_rng(seed)
    for name, dims in shape.tensor_shapes().items():
        writer.add_tensor(name, _tensor(random, name, dims))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensor(
    random: np.random.Generator, name: str, dims: tuple[int, ...]
) -> NDArray[np.float32] | NDArray[np.float16]:
    if name.endswith("norm.weight"):
        return np.ones(dims, np.float32)
    if name.endswith(".ssm_a"):
        return np.full(dims, _DECAY, np.float32)
    if name.endswith((".bias", "sinks.weight")):
        return np.zeros(dims, np.float32)
    if len(dims) == _EXPERTS_DIMS:
        experts = np.empty(dims, np.float16)
        for expert in experts:
            expert[:] = _tensor(random, "", dims[1:])
        return experts
    values = random.standard_normal(dims, dtype=np.float32) * np.float32(0.02)
    return values if "conv1d" in name else values.astype(np.float16)


def _vocabulary(size: int) -> Vocabulary:
    """The built-in model's tokens, filled up to the size with words that the model may write."""
    fields = gguf.GGUFReader(str(_BUILTIN)).fields
    tokens: list[str] = fields["tokenizer.ggml.tokens"].contents()
    merges: list[str] = fields["tokenizer.ggml.merges"].contents()
    if size < len(tokens):
        raise ValueError(f"a vocabulary has {len(tokens)} tokens at least")
    more = [f"Ġword{number}" for number in range(size - len(tokens))]
    pairs = (merge.split(" ") for merge in merges)
    return Vocabulary((*tokens, *more), tuple((left, right) for left, right in pairs))


def main(
    path: Annotated[Path, typer.Argument(help="GGUF to write")] = Path("build/bench/bench.gguf"),
    shape: Annotated[str, typer.Option(help=f"its sizes: {', '.join(SHAPES)}, mtp")] = "qwen2.5-0.5b",
    weights: Annotated[str, typer.Option(help=f"their type: {', '.join(FILE_TYPES)}")] = "Q4_K_M",
    layers: Annotated[int | None, typer.Option(help="blocks of the model; of the shape by default")] = None,
) -> None:
    """Write the model to measure with."""
    if shape == "mtp":
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tiny_mtp(path, knows="token", share=_KNOWN, n_layer=layers or 12, n_embd=1024, n_ctx=8192)
    else:
        if shape not in SHAPES or weights not in FILE_TYPES:
            raise typer.BadParameter(f"no shape {shape} with weights {weights}")
        chosen = SHAPES[shape]
        write_bench_model(
            path, chosen if layers is None else replace(chosen, n_layer=layers), weights=weights
        )
    typer.echo(f"wrote {path}; measure with python -m benchmarks --model {path}")


if __name__ == "__main__":
    typer.run(main)
