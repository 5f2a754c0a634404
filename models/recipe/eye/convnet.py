"""The vision encoder and its projector in torch, the same arithmetic as llama.cpp's ``clip_graph_yasa2``.

ConvNeXt V2 (Woo et al., 2023): a shape is told by the same weights wherever it is.
"""

# The training packages are apart from the product's environment, in which types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.recipe.eye.projector_file import KERNEL, EyeShape

_PLACES = "v.vision_pos_embed"


class Eye(nn.Module):
    """Pixels (batch, height, width, 3) of 0 to 255 to rows (batch, tokens, n_text). Parameters carry GGUF names.

    ``precision`` is that of the blocks' matrix products.
    """

    def __init__(self, shape: EyeShape, *, seed: int, precision: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.shape, self._precision = shape, precision
        generator = torch.Generator().manual_seed(seed)
        for name, dims in shape.tensor_shapes().items():
            if name == _PLACES:
                weight = _places(shape)
            elif name.endswith("bias") or "grn" in name:
                weight = torch.zeros(dims)
            elif len(dims) == 1:
                weight = torch.ones(dims)
            else:
                spread = math.prod(dims[1:]) ** -0.5
                if ".pw2." in name:
                    spread /= sum(shape.blocks) ** 0.5
                weight = torch.empty(dims).normal_(0.0, spread, generator=generator)
            self.register_parameter(_attribute(name), nn.Parameter(weight))

    def weight(self, name: str) -> Tensor:
        """The parameter of a GGUF tensor name."""
        return self.get_parameter(_attribute(name))

    def forward(self, pixels: Tensor) -> Tensor:
        return self.projected(self.features(pixels))

    def placed(self, cells: Tensor) -> Tensor:
        """The features of cells."""
        return cells + self.weight(_PLACES)

    def projected(self, features: Tensor) -> Tensor:
        """Features as rows of the text model's width."""
        return self._linear("mm.2", F.gelu(self._linear("mm.0", features)))

    def features(self, pixels: Tensor) -> Tensor:
        """What the projector reads: (batch, tokens, width)."""
        return self.placed(self.cells(pixels))

    def cells(self, pixels: Tensor) -> Tensor:
        """The features without their places."""
        states = self._reduced("v.patch_embd", pixels.float() / 127.5 - 1, self.shape.patch_size)
        states = self._norm("v.patch_ln", states)
        for stage, blocks in enumerate(self.shape.blocks):
            if stage:
                down = f"v.stage.{stage}.down"
                states = self._reduced(f"{down}.conv", self._norm(f"{down}.ln", states), 2)
            for number in range(blocks):
                states = states + self._block(f"v.stage.{stage}.blk.{number}", states)
        return states.flatten(1, 2)

    def _block(self, name: str, states: Tensor) -> Tensor:
        channels = states.shape[-1]
        mixed = F.conv2d(
            states.permute(0, 3, 1, 2),
            self.weight(f"{name}.dw.weight"),
            self.weight(f"{name}.dw.bias"),
            padding=KERNEL // 2,
            groups=channels,
        ).permute(0, 2, 3, 1)
        inner = F.gelu(self._product(f"{name}.pw1", self._norm(f"{name}.ln", mixed)))
        # Global response normalisation: a channel counts by its strength in the whole picture.
        strength = (inner.square().sum((1, 2), keepdim=True, dtype=torch.float32) + 1e-12).sqrt()
        share = strength / strength.mean(-1, keepdim=True).clamp(min=1e-6)
        factor = 1 + self.weight(f"{name}.grn.weight") * share
        inner = inner * factor.to(inner.dtype) + self.weight(f"{name}.grn.bias").to(inner.dtype)
        return self._product(f"{name}.pw2", inner)

    def _product(self, name: str, states: Tensor) -> Tensor:
        weight, bias = (self.weight(f"{name}.{part}").to(self._precision) for part in ("weight", "bias"))
        return F.linear(states.to(self._precision), weight, bias)

    def _reduced(self, name: str, states: Tensor, size: int) -> Tensor:
        """A convolution whose windows of ``size`` by ``size`` do not overlap."""
        batch, height, width, channels = states.shape
        tiles = states.view(batch, height // size, size, width // size, size, channels)
        rows = tiles.permute(0, 1, 3, 5, 2, 4).flatten(3)
        return F.linear(rows, self.weight(f"{name}.weight").flatten(1), self.weight(f"{name}.bias"))

    def _linear(self, name: str, states: Tensor) -> Tensor:
        return F.linear(states, self.weight(f"{name}.weight"), self.weight(f"{name}.bias"))

    def _norm(self, name: str, states: Tensor) -> Tensor:
        return F.layer_norm(
            states,
            states.shape[-1:],
            self.weight(f"{name}.weight"),
            self.weight(f"{name}.bias"),
            self.shape.norm_epsilon,
        )


def _places(shape: EyeShape) -> Tensor:
    """Sines and cosines of a row's place, so that neighbours are alike from the start."""
    side, quarter = math.isqrt(shape.tokens), shape.widths[-1] // 4
    spots = torch.arange(side).float() / side
    angles = spots[:, None] * math.pi * 2 ** torch.linspace(-1, 1.5, quarter)
    waves = torch.cat([angles.sin(), angles.cos()], -1)
    rows, columns = waves[:, None].expand(-1, side, -1), waves[None].expand(side, -1, -1)
    return 0.5 * torch.cat([rows, columns], -1).reshape(side * side, -1)


def _attribute(name: str) -> str:
    """Parameter names may not hold dots."""
    return name.replace(".", "__")
