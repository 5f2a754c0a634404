"""Random-weight rerankers: decoders of Qwen3-Reranker's kind, with a scoring head or without, and encoders of any size.

python -m models.recipe.reranker_fixtures encoder PATH
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import gguf

from models.recipe.chat_template import CHAT_TEMPLATE
from models.recipe.fixtures import (
    LICENCE,
    Weights,
    add_decoder_vocabulary,
    fixture_vocabulary,
    head_and_tail,
    write_tiny_bert,
)
from models.recipe.gguf_file import finish_gguf, gguf_writer

RERANK_TEMPLATE: Final = (
    "<|im_start|>system\nSay yes if the document answers the query, and no if it does not.<|im_end|>\n"
    "<|im_start|>user\n<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n"
)
"""In the form in which llama.cpp's converter writes Qwen3-Reranker's."""


def write_decoder_reranker(
    path: Path,
    *,
    head: bool,
    template: bool = True,
    seed: int = 0,
    n_layer: int = 2,
    n_embd: int = 64,
    n_head: int = 2,
    n_ff: int = 128,
    n_ctx: int = 1024,
    quantize: bool = False,
) -> None:
    """head: `cls.output` with the labels `yes` and `no`; otherwise the output layer of a model that writes.

    template: whether the file has one for pairs.
    """
    vocabulary = fixture_vocabulary()
    writer = gguf_writer(path, "qwen3", (n_ctx, n_embd, n_layer), n_ff=n_ff, n_head=n_head)
    writer.add_head_count_kv(n_head)
    writer.add_key_length(n_embd // n_head)
    writer.add_value_length(n_embd // n_head)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10_000.0)
    if template:
        writer.add_string("tokenizer.chat_template.rerank", RERANK_TEMPLATE)
    if head:
        writer.add_pooling_type(gguf.PoolingType.RANK)
        writer.add_classifier_output_labels(["yes", "no"])
    add_decoder_vocabulary(writer, vocabulary, quantize=quantize)
    weights = Weights(seed)
    tensors = head_and_tail(weights, vocabulary, n_embd)
    if head:
        del tensors["output.weight"]
        tensors["cls.output.weight"] = weights.named("cls.output.weight", (2, n_embd))
    for layer in range(n_layer):
        dims: dict[str, tuple[int, ...]] = {"attn_norm.weight": (n_embd,), "ffn_norm.weight": (n_embd,)}
        dims |= {f"attn_{part}.weight": (n_embd, n_embd) for part in ("q", "k", "v", "output")}
        dims |= {"attn_q_norm.weight": (n_embd // n_head,), "attn_k_norm.weight": (n_embd // n_head,)}
        dims |= {"ffn_gate.weight": (n_ff, n_embd), "ffn_up.weight": (n_ff, n_embd)}
        dims["ffn_down.weight"] = (n_embd, n_ff)
        tensors |= {f"blk.{layer}.{name}": weights.named(name, shape) for name, shape in dims.items()}
    names = {"general.name": f"reranker-{'head' if head else 'writer'}-{seed}", **LICENCE}
    finish_gguf(
        writer,
        None,
        tensors,
        chat_template=None if head else CHAT_TEMPLATE,
        metadata=names,
        quantize=quantize,
    )


def write_minilm_reranker(path: Path) -> None:
    """The blocks of ms-marco-MiniLM-L6: 6 of width 384, 512 tokens; the words of the other fixtures."""
    write_tiny_bert(path, pooling="rank", n_layer=6, n_embd=384, n_ctx=512, n_ff=1536)


def write_small_decoder_reranker(path: Path) -> None:
    """A decoder of a similar size: 12 blocks of width 384."""
    write_decoder_reranker(
        path, head=True, n_layer=12, n_embd=384, n_head=6, n_ff=1024, n_ctx=2048, quantize=True
    )


WRITERS: Final[Mapping[str, Callable[[Path], None]]] = {
    "encoder": write_minilm_reranker,
    "decoder": write_small_decoder_reranker,
    "writer": lambda path: write_decoder_reranker(path, head=False),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a random-weight reranker.")
    parser.add_argument("kind", choices=sorted(WRITERS))
    parser.add_argument("path", type=Path)
    arguments = parser.parse_args()
    WRITERS[arguments.kind](arguments.path)


if __name__ == "__main__":
    main()
