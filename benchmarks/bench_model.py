"""Writes a model of random weights to measure with, with the shape, size and vocabulary size of Qwen2.5-0.5B.

    python -m benchmarks.bench_model build/bench/bench.gguf
    python -m benchmarks.bench_model build/bench/k-quants.gguf --shape k-quants
    python -m benchmarks.bench_model build/bench/mtp.gguf --shape mtp

What it says means nothing; what it costs is what a real model of the shape costs. Q4_K_M, like most that people run.
The width of the small one lets llama.cpp take K-quants for few of its tensors; in the other shape all have some.
``mtp`` is a mixture of 0.4 B with a head for further tokens that is right about 7 tokens of 10; Q8_0.
"""

from __future__ import annotations

import ctypes
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final, Literal

import gguf
import llama_cpp
import numpy as np
import typer
from numpy.typing import NDArray

from models.recipe.chat_template import CHAT_TEMPLATE
from models.recipe.gguf_file import add_bpe_vocabulary, gguf_writer
from models.recipe.mtp_fixtures import write_tiny_mtp
from models.recipe.vocabulary import Vocabulary

_BUILTIN = Path(__file__).resolve().parent.parent / "models" / "builtin" / "jan-tiny.gguf"
_KNOWN = 0.7
_Q4_K_M = 15  # LLAMA_FTYPE_MOSTLY_Q4_K_M


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a qwen2 model. Widths are multiples of 256, else llama.cpp quantises some tensors differently."""

    n_vocab: int = 151_936
    n_embd: int = 896
    n_layer: int = 24
    n_head: int = 14
    n_head_kv: int = 2
    n_ff: int = 4_864
    n_ctx: int = 32_768

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Row-major shapes by GGUF name."""
        kv = self.n_head_kv * (self.n_embd // self.n_head)
        shapes: dict[str, tuple[int, ...]] = {
            "token_embd.weight": (self.n_vocab, self.n_embd),
            "output_norm.weight": (self.n_embd,),
        }
        for layer in range(self.n_layer):
            parts: dict[str, tuple[int, ...]] = {
                "attn_norm.weight": (self.n_embd,),
                "ffn_norm.weight": (self.n_embd,),
                "attn_q.weight": (self.n_embd, self.n_embd),
                "attn_k.weight": (kv, self.n_embd),
                "attn_v.weight": (kv, self.n_embd),
                "attn_output.weight": (self.n_embd, self.n_embd),
                "attn_q.bias": (self.n_embd,),
                "attn_k.bias": (kv,),
                "attn_v.bias": (kv,),
                "ffn_gate.weight": (self.n_ff, self.n_embd),
                "ffn_up.weight": (self.n_ff, self.n_embd),
                "ffn_down.weight": (self.n_embd, self.n_ff),
            }
            shapes |= {f"blk.{layer}.{name}": shape for name, shape in parts.items()}
        return shapes


SHAPES: Final = {
    "qwen2.5-0.5b": Shape(),
    "k-quants": Shape(n_vocab=100_000, n_embd=2_048, n_layer=14, n_head=16, n_head_kv=4, n_ff=6_144),
}


def write_bench_model(path: Path, shape: Shape, *, seed: int = 0) -> None:
    """Write the quantised file; blocks for about a minute at full size, and needs another 1 GB of disk meanwhile.

    Raises OSError, ValueError where the vocabulary is too small, RuntimeError where llama.cpp cannot quantise.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        halves = Path(folder) / "f16.gguf"
        _write_halves(halves, shape, seed)
        params = llama_cpp.llama_model_quantize_default_params()
        params.ftype = _Q4_K_M
        status = llama_cpp.llama_model_quantize(
            str(halves).encode(), str(path).encode(), ctypes.pointer(params)
        )
        if status != 0:
            raise RuntimeError(f"llama.cpp could not quantise {halves} (status {status})")


def _write_halves(path: Path, shape: Shape, seed: int) -> None:
    sizes = shape.n_ctx, shape.n_embd, shape.n_layer
    writer = gguf_writer(path, "qwen2", sizes, n_ff=shape.n_ff, n_head=shape.n_head)
    writer.add_name("bench")
    writer.add_head_count_kv(shape.n_head_kv)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
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
    if name.endswith(".bias"):
        return np.zeros(dims, np.float32)
    return (random.standard_normal(dims, dtype=np.float32) * np.float32(0.02)).astype(np.float16)


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
    shape: Annotated[
        Literal["qwen2.5-0.5b", "k-quants", "mtp"], typer.Option(help="its sizes")
    ] = "qwen2.5-0.5b",
    layers: Annotated[int | None, typer.Option(help="blocks of the model; of the shape by default")] = None,
) -> None:
    """Write the model to measure with."""
    if shape == "mtp":
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tiny_mtp(path, knows="token", share=_KNOWN, n_layer=layers or 12, n_embd=1024, n_ctx=8192)
    else:
        chosen = SHAPES[shape]
        write_bench_model(path, chosen if layers is None else replace(chosen, n_layer=layers))
    typer.echo(f"wrote {path}; measure with python -m benchmarks --model {path}")


if __name__ == "__main__":
    typer.run(main)
