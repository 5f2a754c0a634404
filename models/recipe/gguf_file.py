"""Writes the vocabulary and the tensors of a model into a GGUF file. Needs only numpy and gguf.

What it is not: a trainer or a reader. Key and tensor names are llama.cpp's (``src/llama-arch.cpp``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from models.recipe.vocabulary import (
    END_OF_TEXT,
    FIM_MIDDLE,
    FIM_PREFIX,
    FIM_SUFFIX,
    MARKER_TOKENS,
    PRE_TOKENIZER,
    SPECIAL_TOKENS,
    TURN_END,
    Vocabulary,
)

Tensors = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True)
class LlamaShape:
    """Sizes of a llama-architecture model. Widths are multiples of 32, the block of Q8_0."""

    n_vocab: int
    n_embd: int
    n_layer: int
    n_head: int
    n_ff: int
    n_ctx: int
    rope_base: float = 10_000.0
    norm_epsilon: float = 1e-5
    tied: bool = True

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Row-major (out, in) shapes by GGUF name. ``tied``: the embedding is the output projection too."""
        shapes: dict[str, tuple[int, ...]] = {
            "token_embd.weight": (self.n_vocab, self.n_embd),
            "output_norm.weight": (self.n_embd,),
        }
        if not self.tied:
            shapes["output.weight"] = (self.n_vocab, self.n_embd)
        for layer in range(self.n_layer):
            block = f"blk.{layer}."
            shapes[block + "attn_norm.weight"] = (self.n_embd,)
            shapes[block + "ffn_norm.weight"] = (self.n_embd,)
            for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
                shapes[f"{block}{name}.weight"] = (self.n_embd, self.n_embd)
            for name in ("ffn_gate", "ffn_up"):
                shapes[f"{block}{name}.weight"] = (self.n_ff, self.n_embd)
            shapes[block + "ffn_down.weight"] = (self.n_embd, self.n_ff)
        return shapes


def write_llama_gguf(
    path: Path,
    shape: LlamaShape,
    vocabulary: Vocabulary,
    tensors: Tensors,
    *,
    chat_template: str | None,
    metadata: Mapping[str, str],
    quantize: bool = True,
    architecture: str = "llama",
) -> None:
    """Write a llama-architecture model with Q8_0 matrices (F32 ones without ``quantize``) and F32 norms.

    ``metadata`` holds further string keys (``general.license`` and the like). ``architecture`` may be another one of
    the same tensors. Raises ``ValueError`` when a tensor is missing, unknown or of the wrong shape.
    """
    expected = shape.tensor_shapes()
    found = {name: array.shape for name, array in tensors.items()}
    if found != expected:
        wrong = sorted(
            name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)
        )
        raise ValueError(f"tensors do not fit the shape: {', '.join(wrong)}")
    sizes = shape.n_ctx, shape.n_embd, shape.n_layer
    writer = gguf_writer(path, architecture, sizes, n_ff=shape.n_ff, n_head=shape.n_head)
    writer.add_vocab_size(shape.n_vocab)
    writer.add_head_count_kv(shape.n_head)
    writer.add_rope_dimension_count(shape.n_embd // shape.n_head)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.norm_epsilon)
    writer.add_file_type(file_type(quantize))
    finish_gguf(
        writer, vocabulary, tensors, chat_template=chat_template, metadata=metadata, quantize=quantize
    )


def gguf_writer(
    path: Path, architecture: str, sizes: tuple[int, int, int], *, n_ff: int, n_head: int
) -> gguf.GGUFWriter:
    """A file's header with the keys of every architecture. sizes: context, width and layers."""
    n_ctx, n_embd, n_layer = sizes
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_context_length(n_ctx)
    writer.add_embedding_length(n_embd)
    writer.add_block_count(n_layer)
    writer.add_feed_forward_length(n_ff)
    writer.add_head_count(n_head)
    return writer


def add_bpe_vocabulary(writer: gguf.GGUFWriter, vocabulary: Vocabulary) -> None:
    """The tokenizer keys of a byte-level BPE model whose turns end with ``<|im_end|>``."""
    kinds = [
        gguf.TokenType.NORMAL
        if token not in SPECIAL_TOKENS
        else gguf.TokenType.USER_DEFINED
        if token in MARKER_TOKENS
        else gguf.TokenType.CONTROL
        for token in vocabulary.tokens
    ]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE_TOKENIZER)
    writer.add_token_list(list(vocabulary.tokens))
    writer.add_token_types(kinds)
    writer.add_token_merges([f"{left} {right}" for left, right in vocabulary.merges])
    writer.add_bos_token_id(vocabulary.id_of(END_OF_TEXT))
    writer.add_add_bos_token(False)
    writer.add_eos_token_id(vocabulary.id_of(TURN_END))
    writer.add_eot_token_id(vocabulary.id_of(TURN_END))
    writer.add_pad_token_id(vocabulary.id_of(END_OF_TEXT))
    writer.add_uint32("tokenizer.ggml.fim_pre_token_id", vocabulary.id_of(FIM_PREFIX))
    writer.add_uint32("tokenizer.ggml.fim_suf_token_id", vocabulary.id_of(FIM_SUFFIX))
    writer.add_uint32("tokenizer.ggml.fim_mid_token_id", vocabulary.id_of(FIM_MIDDLE))


def finish_gguf(
    writer: gguf.GGUFWriter,
    vocabulary: Vocabulary | None,
    tensors: Tensors,
    *,
    chat_template: str | None,
    metadata: Mapping[str, str],
    quantize: bool = True,
) -> None:
    """Add vocabulary (unless the caller did), template, metadata and tensors, write the file and close it."""
    if vocabulary is not None:
        add_bpe_vocabulary(writer, vocabulary)
    if chat_template is not None:
        writer.add_chat_template(chat_template)
    for key, text in metadata.items():
        writer.add_string(key, text)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for name, array in tensors.items():
        # Small row-wise matrices (convolutions, state decay) stay F32: llama.cpp's kernels read them as such.
        if quantize and quantizable(name, array):
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quantize(array, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, np.ascontiguousarray(array, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def file_type(quantize: bool) -> gguf.LlamaFileType:
    """The header's name for the type of the weights."""
    return gguf.LlamaFileType.MOSTLY_Q8_0 if quantize else gguf.LlamaFileType.ALL_F32


def quantizable(name: str, array: NDArray[np.float32]) -> bool:
    """Whether a tensor is a matrix multiplied from the left, or such matrices of experts, so that Q8_0 fits."""
    keep = ("conv1d", "shortconv.conv", "ssm_a", "ssm_x", "ssm_dt", "position_embd", "token_types", "cls")
    is_matrix = array.ndim == 2 or "_exps." in name
    return is_matrix and array.shape[-1] % 32 == 0 and not any(part in name for part in keep)
