"""Writes a vision encoder with a two-layer projector as the GGUF that libmtmd reads beside a text model.

Projector type ``yasa2``: a ConvNeXt whose last cells, 8 by 8, are one row of the text model's width each. Names of keys
and tensors are llama.cpp's (``tools/mtmd/clip-impl.h``). Needs only numpy and gguf.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import gguf
import numpy as np
from numpy.typing import NDArray

KERNEL: Final = 7
"""Of each block's convolution; llama.cpp pads for this one."""

BEFORE: Final = "<image>"
AFTER: Final = "</image>"
"""What libmtmd writes around a picture of this type."""


@dataclass(frozen=True)
class EyeShape:
    """Sizes of the encoder, by stage, and of the text model's embedding (``n_text``). Each stage halves the sides."""

    image_size: int = 32
    patch_size: int = 2
    widths: tuple[int, ...] = (32, 80)
    blocks: tuple[int, ...] = (2, 4)
    expansion: int = 3
    n_text: int = 192
    norm_epsilon: float = 1e-6

    @property
    def tokens(self) -> int:
        """Rows that one picture becomes."""
        return (self.image_size // self.patch_size // 2 ** (len(self.widths) - 1)) ** 2

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Row-major (out, in) shapes by GGUF name."""
        shapes = _affine("v.patch_embd", (self.widths[0], 3, self.patch_size, self.patch_size))
        shapes |= _affine("v.patch_ln", (self.widths[0],))
        for stage, (width, blocks) in enumerate(zip(self.widths, self.blocks, strict=True)):
            if stage:
                before = self.widths[stage - 1]
                shapes |= _affine(f"v.stage.{stage}.down.ln", (before,))
                shapes |= _affine(f"v.stage.{stage}.down.conv", (width, before, 2, 2))
            for number in range(blocks):
                block, inner = f"v.stage.{stage}.blk.{number}", self.expansion * width
                shapes |= _affine(f"{block}.dw", (width, 1, KERNEL, KERNEL))
                shapes |= _affine(f"{block}.ln", (width,))
                shapes |= _affine(f"{block}.pw1", (inner, width))
                shapes |= _affine(f"{block}.grn", (inner,))
                shapes |= _affine(f"{block}.pw2", (width, inner))
        shapes["v.vision_pos_embed"] = (self.tokens, self.widths[-1])
        return (
            shapes
            | _affine("mm.0", (self.n_text, self.widths[-1]))
            | _affine("mm.2", (self.n_text, self.n_text))
        )


def _affine(name: str, weight: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": weight, f"{name}.bias": weight[:1]}


def write_projector(
    path: Path,
    shape: EyeShape,
    tensors: Mapping[str, NDArray[np.float32]],
    *,
    metadata: Mapping[str, str],
    half: bool = True,
) -> None:
    """Write the projector with F16 matrices (F32 ones without ``half``, but for the blocks' convolutions).

    ``metadata`` holds further string keys.

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
    writer.add_string("clip.projector_type", "yasa2")
    for key, number in {
        "image_size": shape.image_size,
        "patch_size": shape.patch_size,
        "embedding_length": shape.widths[-1],
        "feed_forward_length": shape.expansion * shape.widths[-1],
        "block_count": 0,  # of a transformer, which this is not
        "projection_dim": shape.n_text,
        "attention.head_count": 1,
    }.items():
        writer.add_uint32(f"clip.vision.{key}", number)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", shape.norm_epsilon)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    for key, text in metadata.items():
        writer.add_string(key, text)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if half else gguf.LlamaFileType.ALL_F32)
    for name, array in tensors.items():
        # llama.cpp computes the convolutions of blocks in half precision only.
        matrix = ".dw.weight" in name or (half and array.ndim > 1 and "pos_embed" not in name)
        writer.add_tensor(name, np.ascontiguousarray(array, np.float16 if matrix else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
