"""Random-weight GGUF files for tests: a chat model, an embedder, a reranker, a judge, a recurrent and a hybrid model.

They load and run in llama.cpp like real models, are written in well under a second and differ by ``seed`` only.
What they are not: able to say anything sensible. Needs only numpy and gguf.

    from models.recipe.fixtures import write_tiny_llama
    write_tiny_llama(tmp_path / "tiny.gguf", seed=3)
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import cache
from math import sqrt
from pathlib import Path
from typing import Literal

import gguf
import numpy as np
from numpy.typing import NDArray

from models.recipe.chat_template import CHAT_TEMPLATE
from models.recipe.gguf_file import (
    LlamaShape,
    add_bpe_vocabulary,
    file_type,
    finish_gguf,
    gguf_writer,
    write_llama_gguf,
)
from models.recipe.vocabulary import CONTROL_TOKENS, Vocabulary, learn_merges

Array = NDArray[np.float32]
Pooling = Literal["none", "mean", "cls", "last", "rank"]

_POOLING: Mapping[Pooling, gguf.PoolingType] = {
    "none": gguf.PoolingType.NONE,
    "mean": gguf.PoolingType.MEAN,
    "cls": gguf.PoolingType.CLS,
    "last": gguf.PoolingType.LAST,
    "rank": gguf.PoolingType.RANK,
}
LICENCE = {"general.license": "apache-2.0"}
_MERGE_COUNT = 300
_GEMMA_NORMS = ("attn", "post_attention", "ffn", "post_ffw")
# Logits get about this standard deviation: sampling at temperature 1 still varies, greedy choices are clear.
_LOGIT_SPREAD = 3.0
_WORDS = (
    "the of and to in is you that it he was for on are as with his they at be this have from or one had by word but "
    "not what all were we when your can said there use an each which she do how their if will up other about out many "
    "then them these so some her would make like him into time has look two more write go see number no way could "
    "people my than first water been call who oil its now find long down day did get come made may part over new "
    "sound take only little work know place year live me back give most very after thing our just name good sentence "
    "man think say great where help through much before line right too mean old any same tell boy follow came want "
    "show also around form three small set put end does another well large must big even such because turn here why "
    "ask went men read need land different home us move try kind hand picture again change off play spell air away "
    "animal house point page letter mother answer found study still learn should world string object value true "
    "false null array type function return class import self print list integer required properties description"
).split()


@cache
def fixture_vocabulary() -> Vocabulary:
    """256 bytes, 300 merges of everyday English with and without a leading space, and the special tokens."""
    words = sorted(_WORDS) + [" " + word for word in sorted(_WORDS)]
    return Vocabulary.from_merges(learn_merges(words, _MERGE_COUNT))


def write_tiny_llama(
    path: Path,
    *,
    seed: int = 0,
    n_layer: int = 2,
    n_embd: int = 64,
    n_ctx: int = 512,
    chat_template: str | None = CHAT_TEMPLATE,
    metadata: Mapping[str, str] | None = None,
    quantize: bool = True,
    architecture: str = "llama",
) -> None:
    """A llama-architecture chat model with byte-level BPE, chat, tool, thinking and FIM tokens.

    ``n_embd`` is a multiple of 32. Control tokens are never the greedy choice, so a run goes on until its limit;
    grammars, stop strings and biases can still end it. ``metadata`` adds or replaces string keys of the header.
    ``quantize=False`` keeps F32 matrices: rounding differences between batches stay far below any choice then.
    ``architecture``: another one of the same tensors, such as ``llada``.
    """
    vocabulary = fixture_vocabulary()
    shape = LlamaShape(
        n_vocab=len(vocabulary.tokens),
        n_embd=n_embd,
        n_layer=n_layer,
        n_head=max(1, n_embd // 32),
        n_ff=2 * n_embd,
        n_ctx=n_ctx,
        tied=False,
    )
    weights = Weights(seed)
    tensors = {name: weights.named(name, dims) for name, dims in shape.tensor_shapes().items()}
    silence_control_tokens(tensors["output.weight"], vocabulary)
    names = {"general.name": f"tiny-llama-{seed}", **LICENCE, **(metadata or {})}
    write_llama_gguf(
        path,
        shape,
        vocabulary,
        tensors,
        chat_template=chat_template,
        metadata=names,
        quantize=quantize,
        architecture=architecture,
    )


def write_tiny_bert(
    path: Path,
    *,
    seed: int = 0,
    pooling: Pooling = "mean",
    n_layer: int = 2,
    n_embd: int = 64,
    n_ctx: int = 256,
    n_ff: int | None = None,
    quantize: bool = True,
) -> None:
    """A BERT encoder with a WordPiece vocabulary for embeddings; ``pooling="rank"`` adds a one-score classifier."""
    n_ff = 2 * n_embd if n_ff is None else n_ff
    writer = gguf_writer(path, "bert", (n_ctx, n_embd, n_layer), n_ff=n_ff, n_head=n_embd // 32)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_pooling_type(_POOLING[pooling])
    writer.add_file_type(file_type(quantize))
    n_vocab = _add_wordpiece_vocabulary(writer)
    weights = Weights(seed)
    dims: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (n_vocab, n_embd),
        "token_types.weight": (2, n_embd),
        "position_embd.weight": (n_ctx, n_embd),
        "token_embd_norm.weight": (n_embd,),
        "token_embd_norm.bias": (n_embd,),
    }
    for layer in range(n_layer):
        block = f"blk.{layer}."
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            dims |= {f"{block}{name}.weight": (n_embd, n_embd), f"{block}{name}.bias": (n_embd,)}
        for name in ("attn_output_norm", "layer_output_norm"):
            dims |= {f"{block}{name}.weight": (n_embd,), f"{block}{name}.bias": (n_embd,)}
        dims |= {f"{block}ffn_up.weight": (n_ff, n_embd), f"{block}ffn_up.bias": (n_ff,)}
        dims |= {f"{block}ffn_down.weight": (n_embd, n_ff), f"{block}ffn_down.bias": (n_embd,)}
    if pooling == "rank":
        writer.add_classifier_output_labels(["score"])
        dims |= {"cls.weight": (n_embd, n_embd), "cls.bias": (n_embd,)}
        dims |= {"cls.output.weight": (1, n_embd), "cls.output.bias": (1,)}
    tensors = {name: weights.named(name, shape) for name, shape in dims.items()}
    names = {"general.name": f"tiny-bert-{pooling}-{seed}", **LICENCE}
    finish_gguf(writer, None, tensors, chat_template=None, metadata=names, quantize=quantize)


def write_tiny_gemma_embedding(
    path: Path,
    *,
    seed: int = 0,
    n_layer: int = 6,
    n_embd: int = 64,
    n_ctx: int = 512,
    quantize: bool = True,
) -> None:
    """An encoder of EmbeddingGemma's shape: its tokens look at each other, which its file does not say.

    Of six blocks one sees everything, the others a window: llama.cpp fails where it has no use for one of the masks.
    """
    n_head = n_embd // 32
    vocabulary = fixture_vocabulary()
    writer = gguf_writer(path, "gemma-embedding", (n_ctx, n_embd, n_layer), n_ff=2 * n_embd, n_head=n_head)
    writer.add_head_count_kv(n_head)
    writer.add_key_length(n_embd // n_head)
    writer.add_value_length(n_embd // n_head)
    writer.add_sliding_window(n_ctx)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10_000.0)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    add_decoder_vocabulary(writer, vocabulary, quantize=quantize)
    weights = Weights(seed)
    tensors = {
        "token_embd.weight": weights.named("token_embd.weight", (len(vocabulary.tokens), n_embd)),
        "output_norm.weight": np.ones(n_embd, dtype=np.float32),
    }
    for layer in range(n_layer):
        dims: dict[str, tuple[int, ...]] = {f"{part}_norm.weight": (n_embd,) for part in _GEMMA_NORMS}
        dims |= {f"attn_{part}.weight": (n_embd, n_embd) for part in ("q", "k", "v", "output")}
        dims |= {"attn_q_norm.weight": (n_embd // n_head,), "attn_k_norm.weight": (n_embd // n_head,)}
        dims |= {"ffn_gate.weight": (2 * n_embd, n_embd), "ffn_up.weight": (2 * n_embd, n_embd)}
        dims["ffn_down.weight"] = (n_embd, 2 * n_embd)
        tensors |= {f"blk.{layer}.{name}": weights.named(name, shape) for name, shape in dims.items()}
    names = {"general.name": f"tiny-gemma-embedding-{seed}", **LICENCE}
    finish_gguf(writer, None, tensors, chat_template=None, metadata=names, quantize=quantize)


def write_tiny_judge(
    path: Path,
    *,
    seed: int = 0,
    n_layer: int = 2,
    n_embd: int = 64,
    n_ctx: int = 512,
    quantize: bool = True,
) -> None:
    """A scoring decoder of Qwen3-Reranker's shape: the probabilities of ``yes`` and ``no`` after the last token."""
    n_head = n_embd // 32
    vocabulary = fixture_vocabulary()
    writer = gguf_writer(path, "qwen3", (n_ctx, n_embd, n_layer), n_ff=2 * n_embd, n_head=n_head)
    writer.add_head_count_kv(n_head)
    writer.add_key_length(n_embd // n_head)
    writer.add_value_length(n_embd // n_head)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10_000.0)
    writer.add_pooling_type(gguf.PoolingType.RANK)
    writer.add_classifier_output_labels(["yes", "no"])
    add_decoder_vocabulary(writer, vocabulary, quantize=quantize)
    weights = Weights(seed)
    tensors = {
        "token_embd.weight": weights.named("token_embd.weight", (len(vocabulary.tokens), n_embd)),
        "output_norm.weight": np.ones(n_embd, dtype=np.float32),
        "cls.output.weight": weights.named("cls.output.weight", (2, n_embd)),
    }
    for layer in range(n_layer):
        dims: dict[str, tuple[int, ...]] = {"attn_norm.weight": (n_embd,), "ffn_norm.weight": (n_embd,)}
        dims |= {f"attn_{part}.weight": (n_embd, n_embd) for part in ("q", "k", "v", "output")}
        dims |= {"attn_q_norm.weight": (n_embd // n_head,), "attn_k_norm.weight": (n_embd // n_head,)}
        dims |= {"ffn_gate.weight": (2 * n_embd, n_embd), "ffn_up.weight": (2 * n_embd, n_embd)}
        dims["ffn_down.weight"] = (n_embd, 2 * n_embd)
        tensors |= {f"blk.{layer}.{name}": weights.named(name, shape) for name, shape in dims.items()}
    names = {"general.name": f"tiny-judge-{seed}", **LICENCE}
    finish_gguf(writer, None, tensors, chat_template=None, metadata=names, quantize=quantize)


def write_tiny_recurrent(
    path: Path,
    *,
    seed: int = 0,
    n_layer: int = 2,
    n_embd: int = 64,
    n_ctx: int = 512,
    quantize: bool = True,
) -> None:
    """A Mamba model: no attention, a fixed-size state per sequence that cannot drop a part of its past."""
    d_inner, d_state, d_conv, dt_rank = 2 * n_embd, 16, 4, max(1, n_embd // 16)
    vocabulary = fixture_vocabulary()
    writer = gguf_writer(path, "mamba", (n_ctx, n_embd, n_layer), n_ff=0, n_head=0)
    writer.add_ssm_conv_kernel(d_conv)
    writer.add_ssm_inner_size(d_inner)
    writer.add_ssm_state_size(d_state)
    writer.add_ssm_time_step_rank(dt_rank)
    writer.add_layer_norm_rms_eps(1e-5)
    add_decoder_vocabulary(writer, vocabulary, quantize=quantize)
    weights = Weights(seed)
    tensors = head_and_tail(weights, vocabulary, n_embd)
    for layer in range(n_layer):
        block = f"blk.{layer}."
        dims: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (n_embd,),
            "ssm_in.weight": (2 * d_inner, n_embd),
            "ssm_conv1d.weight": (d_inner, d_conv),
            "ssm_conv1d.bias": (d_inner,),
            "ssm_x.weight": (dt_rank + 2 * d_state, d_inner),
            "ssm_dt.weight": (d_inner, dt_rank),
            "ssm_dt.bias": (d_inner,),
            "ssm_out.weight": (n_embd, d_inner),
        }
        tensors |= {block + name: weights.named(name, shape) for name, shape in dims.items()}
        # Mamba's S4D-real start: the state decays at rates 1..d_state.
        tensors[block + "ssm_a"] = -np.tile(np.arange(1, d_state + 1, dtype=np.float32), (d_inner, 1))
        tensors[block + "ssm_d"] = np.ones(d_inner, dtype=np.float32)
    names = {"general.name": f"tiny-mamba-{seed}", **LICENCE}
    finish_gguf(writer, None, tensors, chat_template=CHAT_TEMPLATE, metadata=names, quantize=quantize)


def write_tiny_hybrid(
    path: Path,
    *,
    seed: int = 0,
    n_layer: int = 3,
    n_embd: int = 64,
    n_ctx: int = 512,
    quantize: bool = True,
) -> None:
    """An LFM2 model: short-convolution layers with recurrent state, and one attention layer with a KV cache."""
    n_head, l_cache = n_embd // 32, 3
    vocabulary = fixture_vocabulary()
    attention_layers = {n_layer // 2}
    writer = gguf_writer(path, "lfm2", (n_ctx, n_embd, n_layer), n_ff=2 * n_embd, n_head=n_head)
    writer.add_head_count_kv([n_head if layer in attention_layers else 0 for layer in range(n_layer)])
    writer.add_shortconv_l_cache(l_cache)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    add_decoder_vocabulary(writer, vocabulary, quantize=quantize)
    weights = Weights(seed)
    tensors = head_and_tail(weights, vocabulary, n_embd, norm="token_embd_norm.weight")
    for layer in range(n_layer):
        dims: dict[str, tuple[int, ...]] = {"attn_norm.weight": (n_embd,), "ffn_norm.weight": (n_embd,)}
        dims |= {"ffn_gate.weight": (2 * n_embd, n_embd), "ffn_up.weight": (2 * n_embd, n_embd)}
        dims["ffn_down.weight"] = (n_embd, 2 * n_embd)
        if layer in attention_layers:
            dims |= {f"attn_{part}.weight": (n_embd, n_embd) for part in ("q", "k", "v", "output")}
            dims |= {"attn_q_norm.weight": (n_embd // n_head,), "attn_k_norm.weight": (n_embd // n_head,)}
        else:
            dims["shortconv.conv.weight"] = (n_embd, l_cache)
            dims["shortconv.in_proj.weight"] = (3 * n_embd, n_embd)
            dims["shortconv.out_proj.weight"] = (n_embd, n_embd)
        tensors |= {f"blk.{layer}.{name}": weights.named(name, shape) for name, shape in dims.items()}
    names = {"general.name": f"tiny-lfm2-{seed}", **LICENCE}
    finish_gguf(writer, None, tensors, chat_template=CHAT_TEMPLATE, metadata=names, quantize=quantize)


def write_tiny_sliding(
    path: Path,
    *,
    seed: int = 0,
    window: int = 32,
    n_embd: int = 64,
    n_ctx: int = 512,
    quantize: bool = True,
) -> None:
    """A Cohere2 model: three blocks that see the last `window` tokens only, and one that sees all of them."""
    n_head, n_layer = n_embd // 32, 4
    vocabulary = fixture_vocabulary()
    writer = gguf_writer(path, "cohere2", (n_ctx, n_embd, n_layer), n_ff=2 * n_embd, n_head=n_head)
    writer.add_head_count_kv(n_head)
    writer.add_sliding_window(window)
    writer.add_layer_norm_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_logit_scale(1.0)
    add_decoder_vocabulary(writer, vocabulary, quantize=quantize)
    weights = Weights(seed)
    # The output layer is the table of embeddings again.
    embeddings = weights.named("output.weight", (len(vocabulary.tokens), n_embd))
    silence_control_tokens(embeddings, vocabulary)
    tensors = {"token_embd.weight": embeddings, "output_norm.weight": np.ones(n_embd, dtype=np.float32)}
    for layer in range(n_layer):
        dims: dict[str, tuple[int, ...]] = {"attn_norm.weight": (n_embd,)}
        dims |= {f"attn_{part}.weight": (n_embd, n_embd) for part in ("q", "k", "v", "output")}
        dims |= {"ffn_gate.weight": (2 * n_embd, n_embd), "ffn_up.weight": (2 * n_embd, n_embd)}
        dims["ffn_down.weight"] = (n_embd, 2 * n_embd)
        tensors |= {f"blk.{layer}.{name}": weights.named(name, shape) for name, shape in dims.items()}
    names = {"general.name": f"tiny-cohere2-{seed}", **LICENCE}
    finish_gguf(writer, None, tensors, chat_template=CHAT_TEMPLATE, metadata=names, quantize=quantize)


def add_decoder_vocabulary(writer: gguf.GGUFWriter, vocabulary: Vocabulary, *, quantize: bool) -> None:
    writer.add_vocab_size(len(vocabulary.tokens))
    writer.add_file_type(file_type(quantize))
    add_bpe_vocabulary(writer, vocabulary)


class Weights:
    """Seeded tensors whose scale keeps activations near one: norms 1, biases 0, matrices gain / sqrt(inputs)."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def named(self, name: str, shape: tuple[int, ...]) -> Array:
        if name.endswith("norm.weight"):
            return np.ones(shape, dtype=np.float32)
        if name.endswith(".bias"):
            return np.zeros(shape, dtype=np.float32)
        if "embd" in name or "token_types" in name:
            return self._normal(shape, 1.0)
        gain = _LOGIT_SPREAD if name == "output.weight" else 2.0
        return self._normal(shape, gain / sqrt(shape[-1]))

    def _normal(self, shape: tuple[int, ...], spread: float) -> Array:
        return (self._random.standard_normal(shape) * spread).astype(np.float32)


def random_tensors(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, Array]:
    """Weights of these shapes, by GGUF name."""
    weights = Weights(seed)
    return {name: weights.named(name, shape) for name, shape in shapes.items()}


def head_and_tail(
    weights: Weights, vocabulary: Vocabulary, n_embd: int, *, norm: str = "output_norm.weight"
) -> dict[str, Array]:
    n_vocab = len(vocabulary.tokens)
    tensors = {
        "token_embd.weight": weights.named("token_embd.weight", (n_vocab, n_embd)),
        norm: np.ones(n_embd, dtype=np.float32),
        "output.weight": weights.named("output.weight", (n_vocab, n_embd)),
    }
    silence_control_tokens(tensors["output.weight"], vocabulary)
    return tensors


def silence_control_tokens(output: Array, vocabulary: Vocabulary) -> None:
    """Make them no greedy choice: a zero row has logit 0, far below the best of some hundred random ones."""
    for token in CONTROL_TOKENS:
        output[vocabulary.id_of(token)] = 0.0


def _add_wordpiece_vocabulary(writer: gguf.GGUFWriter) -> int:
    """BERT's special tokens, characters and words, in llama.cpp's spelling ("▁" starts a word). Returns the count."""
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    characters = [chr(code) for code in range(0x21, 0x7F) if not chr(code).isupper()]
    ends = ["s", "ed", "ing", "er", "est", "ly", "tion", "ness"]
    pieces = [*characters, *(end for end in ends if len(end) > 1)]
    tokens = [
        *special,
        *("▁" + mark for mark in characters),
        *pieces,
        *("▁" + word for word in sorted(set(_WORDS))),
    ]
    tokens = list(dict.fromkeys(tokens))
    kinds = [gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token in tokens]
    kinds[tokens.index("[UNK]")] = gguf.TokenType.UNKNOWN
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_type_count(2)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_pad_token_id(tokens.index("[PAD]"))
    writer.add_unk_token_id(tokens.index("[UNK]"))
    writer.add_bos_token_id(tokens.index("[CLS]"))
    writer.add_eos_token_id(tokens.index("[SEP]"))
    writer.add_sep_token_id(tokens.index("[SEP]"))
    writer.add_mask_token_id(tokens.index("[MASK]"))
    return len(tokens)


WRITERS: Mapping[str, Callable[[Path], None]] = {
    "llama": write_tiny_llama,
    "bert": write_tiny_bert,
    "rerank": lambda path: write_tiny_bert(path, pooling="rank"),
    "judge": write_tiny_judge,
    "recurrent": write_tiny_recurrent,
    "hybrid": write_tiny_hybrid,
}


def main() -> None:
    """``python -m models.recipe.fixtures KIND PATH`` writes one fixture."""
    parser = argparse.ArgumentParser(description="Write a random-weight GGUF for tests.")
    parser.add_argument("kind", choices=sorted(WRITERS))
    parser.add_argument("path", type=Path)
    arguments = parser.parse_args()
    WRITERS[arguments.kind](arguments.path)


if __name__ == "__main__":
    main()
