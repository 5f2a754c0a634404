"""Random-weight projectors (mmproj files) for tests, and a text model for positions in three dimensions.

libmtmd loads and runs them like real ones; different media give different embeddings. Written in well under a second;
they differ by ``seed`` only. Key and tensor names are those of llama.cpp's ``tools/mtmd/clip-impl.h``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Final, Literal

import gguf
import numpy as np
from numpy.typing import NDArray

from models.recipe.chat_template import CHAT_TEMPLATE
from models.recipe.fixtures import fixture_vocabulary, random_tensors, silence_control_tokens
from models.recipe.gguf_file import file_type, finish_gguf, gguf_writer

Array = NDArray[np.float32]

ProjectorKind = Literal["mlp", "gemma3", "qwen2vl_merger"]
"""mlp: 16 cells, each attends to earlier ones. gemma3: 9 cells, which attend to each other. qwen2vl_merger: as many
cells as the size of the image asks for, with positions in three dimensions (M-RoPE)."""


_STACKED: Final = 100
"""Frames of sound that become one cell: 15 cells for each 30 seconds."""
_MEL_BINS: Final = 16
_SOUND_FRAMES: Final = 1500


@dataclass(frozen=True, slots=True)
class EncoderShape:
    """Sides of images and of patches in pixels, and the sizes of the blocks."""

    size: int
    patch: int
    blocks: int
    width: int = 64
    ff_width: int = 128
    heads: int = 4


TINY_SHAPES: Final[dict[ProjectorKind, EncoderShape]] = {
    # Of LLaVA's blocks the last one is never run.
    "mlp": EncoderShape(32, 8, 3),
    "gemma3": EncoderShape(48, 8, 2),
    "qwen2vl_merger": EncoderShape(56, 14, 2),
}
_GEMMA_POOLING = 2
_QWEN_MERGED = 4


def write_tiny_projector(path: Path, kind: ProjectorKind, *, n_embd: int = 64, seed: int = 0) -> None:
    """A projector for text models of the width ``n_embd``."""
    write_projector(path, kind, TINY_SHAPES[kind], n_embd=n_embd, seed=seed)


def write_projector(
    path: Path, kind: ProjectorKind, shape: EncoderShape, *, n_embd: int, seed: int = 0
) -> None:
    """As ``write_tiny_projector``, of any size."""
    writer = gguf.GGUFWriter(str(path), "clip")
    writer.add_type("mmproj")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", kind)
    numbers = {
        "image_size": shape.size,
        "patch_size": shape.patch,
        "embedding_length": shape.width,
        "feed_forward_length": shape.ff_width,
        "block_count": shape.blocks,
        "projection_dim": n_embd,
        "attention.head_count": shape.heads,
    }
    if kind == "gemma3":
        numbers["projector.scale_factor"] = _GEMMA_POOLING
    for name, number in numbers.items():
        writer.add_uint32(f"clip.vision.{name}", number)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    writer.add_bool("clip.use_gelu", True)
    dims = _encoder_dims(kind, shape) | _projector_dims(kind, shape.width, n_embd)
    _finish(writer, dims, kind, seed)


def write_tiny_hearing_projector(path: Path, *, n_embd: int = 64, seed: int = 0) -> None:
    """A projector of the type ``ultravox``, for sound: Whisper's encoder, then frames stacked to cells."""
    width, ff_width, blocks, hidden = 64, 128, 2, 96
    writer = gguf.GGUFWriter(str(path), "clip")
    writer.add_type("mmproj")
    writer.add_bool("clip.has_audio_encoder", True)
    writer.add_string("clip.projector_type", "ultravox")
    for name, number in {
        "num_mel_bins": _MEL_BINS,
        "embedding_length": width,
        "feed_forward_length": ff_width,
        "block_count": blocks,
        "projection_dim": n_embd,
        "attention.head_count": 4,
        "projector.stack_factor": _STACKED,
    }.items():
        writer.add_uint32(f"clip.audio.{name}", number)
    writer.add_float32("clip.audio.attention.layer_norm_epsilon", 1e-5)
    dims: dict[str, tuple[int, ...]] = {
        "a.conv1d.1.weight": (width, _MEL_BINS, 3),
        "a.conv1d.1.bias": (width, 1),
        "a.conv1d.2.weight": (width, width, 3),
        "a.conv1d.2.bias": (width, 1),
        "a.position_embd.weight": (_SOUND_FRAMES, width),
        "a.post_ln.weight": (width,),
        "a.post_ln.bias": (width,),
        "mm.a.norm_pre.weight": (_STACKED * width,),
        "mm.a.mlp.1.weight": (2 * hidden, _STACKED * width),
        "mm.a.norm_mid.weight": (hidden,),
        "mm.a.mlp.2.weight": (n_embd, hidden),
    }
    for number in range(blocks):
        dims |= _block_dims(f"a.blk.{number}.", width, ff_width)
        del dims[f"a.blk.{number}.attn_k.bias"]  # Whisper has none
    _finish(writer, dims, "ultravox", seed)


def write_tiny_conformer(path: Path, *, n_embd: int = 64, seed: int = 0) -> None:
    """A projector of the type ``lfm2a``, for sound of any length: a cell for each eight frames of 10 ms."""
    width, ff_width, channels, heads = 512, 64, 8, 8  # libmtmd has this width in its code
    writer = gguf.GGUFWriter(str(path), "clip")
    writer.add_type("mmproj")
    writer.add_bool("clip.has_audio_encoder", True)
    writer.add_string("clip.projector_type", "lfm2a")
    for name, number in {
        "num_mel_bins": _MEL_BINS,
        "embedding_length": width,
        "feed_forward_length": ff_width,
        "block_count": 1,
        "projection_dim": n_embd,
        "attention.head_count": heads,
    }.items():
        writer.add_uint32(f"clip.audio.{name}", number)
    writer.add_float32("clip.audio.attention.layer_norm_epsilon", 1e-5)
    dims: dict[str, tuple[int, ...]] = {
        "a.pre_encode.out.weight": (width, channels * _MEL_BINS // 8),
        "a.pre_encode.out.bias": (width,),
        "a.position_embd.weight": (_SOUND_FRAMES, n_embd),
        "mm.a.mlp.0.weight": (width,),
        "mm.a.mlp.0.bias": (width,),
        "mm.a.mlp.1.weight": (ff_width, width),
        "mm.a.mlp.1.bias": (ff_width,),
        "mm.a.mlp.3.weight": (n_embd, ff_width),
        "mm.a.mlp.3.bias": (n_embd,),
    }
    for number, (inputs, side) in {
        0: (1, 3),
        2: (1, 3),
        3: (channels, 1),
        5: (1, 3),
        6: (channels, 1),
    }.items():
        dims[f"a.conv1d.{number}.weight"] = (channels, inputs, side, side)
        dims[f"a.conv1d.{number}.bias"] = (channels, 1, 1)
    block = "a.blk.0."
    dims |= _block_dims(block, width, ff_width)
    dims |= {f"{block}{part}": (heads, width // heads) for part in ("pos_bias_u", "pos_bias_v")}
    dims |= {f"{block}linear_pos.weight": (width, width), f"{block}conv_dw.weight": (width, 9)}
    dims |= {f"{block}conv_pw1.weight": (2 * width, width), f"{block}conv_pw1.bias": (2 * width,)}
    dims |= {f"{block}conv_pw2.weight": (width, width), f"{block}conv_pw2.bias": (width,)}
    dims |= {f"{block}ffn_up_1.weight": (ff_width, width), f"{block}ffn_up_1.bias": (ff_width,)}
    dims |= {f"{block}ffn_down_1.weight": (width, ff_width), f"{block}ffn_down_1.bias": (width,)}
    dims[f"{block}conv_dw.bias"] = (width,)
    for name in ("ffn_norm", "ffn_norm_1", "norm_conv", "conv_norm"):
        dims |= {f"{block}{name}.weight": (width,), f"{block}{name}.bias": (width,)}
    _finish(writer, dims, "lfm2a", seed)


def _finish(writer: gguf.GGUFWriter, dims: Mapping[str, tuple[int, ...]], kind: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    tensors = {name: _weights(random, name, each) for name, each in dims.items()}
    names = {"general.name": f"tiny-{kind}-{seed}", "general.license": "apache-2.0"}
    finish_gguf(writer, None, tensors, chat_template=None, metadata=names, quantize=False)


def _encoder_dims(kind: ProjectorKind, shape: EncoderShape) -> dict[str, tuple[int, ...]]:
    width, ff_width, patch = shape.width, shape.ff_width, shape.patch
    dims: dict[str, tuple[int, ...]] = {"v.patch_embd.weight": (width, 3, patch, patch)}
    if kind == "qwen2vl_merger":
        # Its patches have two frames, no bias and no table of positions.
        dims["v.patch_embd.weight.1"] = (width, 3, patch, patch)
    else:
        dims |= {"v.patch_embd.bias": (width,), "v.position_embd.weight": ((shape.size // patch) ** 2, width)}
    around = "v.pre_ln" if kind == "mlp" else "v.post_ln"
    dims |= {f"{around}.weight": (width,), f"{around}.bias": (width,)}
    for number in range(shape.blocks):
        dims |= _block_dims(f"v.blk.{number}.", width, ff_width)
    return dims


def _block_dims(block: str, width: int, ff_width: int) -> dict[str, tuple[int, ...]]:
    dims: dict[str, tuple[int, ...]] = {}
    for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
        dims |= {f"{block}{name}.weight": (width, width), f"{block}{name}.bias": (width,)}
    for name in ("ln1", "ln2"):
        dims |= {f"{block}{name}.weight": (width,), f"{block}{name}.bias": (width,)}
    dims |= {f"{block}ffn_up.weight": (ff_width, width), f"{block}ffn_up.bias": (ff_width,)}
    return dims | {f"{block}ffn_down.weight": (width, ff_width), f"{block}ffn_down.bias": (width,)}


def _projector_dims(kind: ProjectorKind, width: int, n_embd: int) -> dict[str, tuple[int, ...]]:
    if kind == "gemma3":
        return {"mm.input_projection.weight": (width, n_embd), "mm.soft_emb_norm.weight": (width,)}
    inputs, hidden = (width, n_embd) if kind == "mlp" else (_QWEN_MERGED * width, _QWEN_MERGED * width)
    return {
        "mm.0.weight": (hidden, inputs),
        "mm.0.bias": (hidden,),
        "mm.2.weight": (n_embd, hidden),
        "mm.2.bias": (n_embd,),
    }


def _weights(random: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
    if name.endswith(".bias"):
        return np.zeros(shape, np.float32)
    if len(shape) == 1:
        return np.ones(shape, np.float32)
    # Large patches and small positions: what is seen weighs more than where.
    spread = 0.1 if "patch_embd" in name else 0.02 if "position_embd" in name else 1 / sqrt(shape[-1])
    return (random.standard_normal(shape) * spread).astype(np.float32)


def write_tiny_qwen2vl(
    path: Path, *, seed: int = 0, n_layer: int = 2, n_embd: int = 64, n_ctx: int = 512, quantize: bool = True
) -> None:
    """A text model of Qwen2-VL's architecture, whose tokens have positions in three dimensions."""
    n_head = n_embd // 32
    vocabulary = fixture_vocabulary()
    writer = gguf_writer(path, "qwen2vl", (n_ctx, n_embd, n_layer), n_ff=2 * n_embd, n_head=n_head)
    writer.add_head_count_kv(n_head)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10_000.0)
    # Time, height, width: together half of a head.
    writer.add_rope_dimension_sections([4, 6, 6, 0])
    writer.add_vocab_size(len(vocabulary.tokens))
    writer.add_file_type(file_type(quantize))
    dims: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (len(vocabulary.tokens), n_embd),
        "output_norm.weight": (n_embd,),
        "output.weight": (len(vocabulary.tokens), n_embd),
    }
    for layer in range(n_layer):
        block = f"blk.{layer}."
        dims |= {f"{block}{part}_norm.weight": (n_embd,) for part in ("attn", "ffn")}
        dims |= {f"{block}attn_{part}.weight": (n_embd, n_embd) for part in ("q", "k", "v", "output")}
        dims |= {f"{block}attn_{part}.bias": (n_embd,) for part in "qkv"}
        dims |= {f"{block}ffn_{part}.weight": (2 * n_embd, n_embd) for part in ("gate", "up")}
        dims[f"{block}ffn_down.weight"] = (n_embd, 2 * n_embd)
    tensors = random_tensors(dims, seed)
    silence_control_tokens(tensors["output.weight"], vocabulary)
    names = {"general.name": f"tiny-qwen2vl-{seed}", "general.license": "apache-2.0"}
    finish_gguf(writer, vocabulary, tensors, chat_template=CHAT_TEMPLATE, metadata=names, quantize=quantize)
