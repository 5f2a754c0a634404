"""Writes a vision encoder with a two-layer projector as the GGUF that libmtmd reads beside a text model.

Projector type ``mlp``: one square picture in, one row of the text model's width for each patch. Names of keys and
tensors are llama.cpp's (``tools/mtmd/clip-impl.h``). Needs only numpy and gguf.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class EyeShape:
    """Sizes of the encoder, and of the text model's embedding (``n_text``)."""

    image_size: int = 32
    patch_size: int = 8
    n_embd: int = 96
    n_layer: int = 4
    n_head: int = 3
    n_ff: int = 288
    n_text: int = 192
    norm_epsilon: float = 1e-5

    @property
    def tokens(self) -> int:
        """Rows that one picture becomes."""
        return (self.image_size // self.patch_size) ** 2

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Row-major (out, in) shapes by GGUF name."""
        shapes: dict[str, tuple[int, ...]] = {
            "v.patch_embd.weight": (self.n_embd, 3, self.patch_size, self.patch_size),
            "v.patch_embd.bias": (self.n_embd,),
            "v.position_embd.weight": (self.tokens, self.n_embd),
        }
        for layer in range(self.n_layer):
            block = f"v.blk.{layer}."
            for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
                shapes |= {
                    f"{block}{name}.weight": (self.n_embd, self.n_embd),
                    f"{block}{name}.bias": (self.n_embd,),
                }
            for name in ("ln1", "ln2"):
                shapes |= {f"{block}{name}.weight": (self.n_embd,), f"{block}{name}.bias": (self.n_embd,)}
            shapes |= {f"{block}ffn_up.weight": (self.n_ff, self.n_embd), f"{block}ffn_up.bias": (self.n_ff,)}
            shapes |= {
                f"{block}ffn_down.weight": (self.n_embd, self.n_ff),
                f"{block}ffn_down.bias": (self.n_embd,),
            }
        return shapes | {
            "v.post_ln.weight": (self.n_embd,),
            "v.post_ln.bias": (self.n_embd,),
            "mm.0.weight": (self.n_text, self.n_embd),
            "mm.0.bias": (self.n_text,),
            "mm.2.weight": (self.n_text, self.n_text),
            "mm.2.bias": (self.n_text,),
        }


def write_projector(
    path: Path,
    shape: EyeShape,
    tensors: Mapping[str, NDArray[np.float32]],
    *,
    metadata: Mapping[str, str],
    half: bool = True,
) -> None:
    """Write the projector with F16 matrices (F32 ones without ``half``). ``metadata`` holds further string keys.

    Raises ``ValueError`` when a tensor is missing, unknown or of the wrong shape.
    """
    expected = shape.tensor_shapes()
    found = {name: array.shape for name, array in tensors.items()}
    if found != expected:
        wrong = sorted(
            name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)
        )
        raise ValueError(f"tensors do not fit the shape: {', '.join(wrong)}")
    writer = gguf.GGUFWriter(str(path), "clip")
    writer.add_type("mmproj")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "mlp")
    writer.add_bool("clip.use_gelu", True)
    for key, number in {
        "image_size": shape.image_size,
        "patch_size": shape.patch_size,
        "embedding_length": shape.n_embd,
        "feed_forward_length": shape.n_ff,
        "block_count": shape.n_layer,
        "projection_dim": shape.n_text,
        "attention.head_count": shape.n_head,
    }.items():
        writer.add_uint32(f"clip.vision.{key}", number)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", shape.norm_epsilon)
    # Without it, the last block of a projector of this type is left out.
    writer.add_array("clip.vision.feature_layer", [shape.n_layer])
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    for key, text in metadata.items():
        writer.add_string(key, text)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if half else gguf.LlamaFileType.ALL_F32)
    for name, array in tensors.items():
        matrix = half and array.ndim > 1 and "position_embd" not in name
        writer.add_tensor(name, np.ascontiguousarray(array, np.float16 if matrix else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
