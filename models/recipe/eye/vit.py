"""The vision encoder and its projector in torch, the same arithmetic as llama.cpp's ``clip_graph_llava``."""

# The training packages are apart from the product's environment, in which types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.recipe.eye.projector_file import EyeShape


class Eye(nn.Module):
    """Pixels (batch, height, width, 3) of 0 to 255 to rows (batch, tokens, n_text). Parameters carry GGUF names."""

    def __init__(self, shape: EyeShape, *, seed: int) -> None:
        super().__init__()
        self.shape = shape
        generator = torch.Generator().manual_seed(seed)
        for name, dims in shape.tensor_shapes().items():
            if name.endswith("bias"):
                weight = torch.zeros(dims)
            elif len(dims) == 1:
                weight = torch.ones(dims)
            else:
                inputs = math.prod(dims[1:])
                spread = inputs**-0.5
                if name.endswith(("attn_out.weight", "ffn_down.weight")):
                    spread /= (2 * shape.n_layer) ** 0.5
                weight = torch.empty(dims).normal_(0.0, spread, generator=generator)
            if "position_embd" in name:
                weight = _places(shape)
            self.register_parameter(_attribute(name), nn.Parameter(weight))

    def weight(self, name: str) -> Tensor:
        """The parameter of a GGUF tensor name."""
        return self.get_parameter(_attribute(name))

    def forward(self, pixels: Tensor) -> Tensor:
        return self.projected(self.features(pixels))

    def projected(self, features: Tensor) -> Tensor:
        """Features as rows of the text model's width."""
        return self._linear("mm.2", F.gelu(self._linear("mm.0", features), approximate="tanh"))

    def features(self, pixels: Tensor) -> Tensor:
        """What the projector reads: (batch, tokens, n_embd)."""
        shape = self.shape
        patches = self._patches(pixels.float() / 127.5 - 1)
        states = F.linear(
            patches, self.weight("v.patch_embd.weight").flatten(1), self.weight("v.patch_embd.bias")
        )
        states = states + self.weight("v.position_embd.weight")
        for layer in range(shape.n_layer):
            block = f"v.blk.{layer}."
            states = states + self._attention(block, self._norm(block + "ln1", states))
            inner = F.gelu(
                self._linear(block + "ffn_up", self._norm(block + "ln2", states)), approximate="tanh"
            )
            states = states + self._linear(block + "ffn_down", inner)
        return self._norm("v.post_ln", states)

    def _patches(self, pixels: Tensor) -> Tensor:
        """(batch, tokens, 3 * patch * patch): patches row by row, each of them channel by channel."""
        size, count = self.shape.patch_size, self.shape.image_size // self.shape.patch_size
        grid = pixels.view(-1, count, size, count, size, 3).permute(0, 1, 3, 5, 2, 4)
        return grid.reshape(len(pixels), count * count, -1)

    def _attention(self, block: str, states: Tensor) -> Tensor:
        batch, length, width = states.shape
        weight = torch.cat([self.weight(f"{block}attn_{part}.weight") for part in "qkv"])
        bias = torch.cat([self.weight(f"{block}attn_{part}.bias") for part in "qkv"])
        fused = F.linear(states, weight, bias).view(batch, length, 3, self.shape.n_head, -1)
        queries, keys, values = fused.permute(2, 0, 3, 1, 4)
        scores = queries @ keys.transpose(-1, -2) * (width // self.shape.n_head) ** -0.5
        mixed = (scores.softmax(-1) @ values).transpose(1, 2).reshape(batch, length, width)
        return self._linear(block + "attn_out", mixed)

    def _linear(self, name: str, states: Tensor) -> Tensor:
        return F.linear(states, self.weight(name + ".weight"), self.weight(name + ".bias"))

    def _norm(self, name: str, states: Tensor) -> Tensor:
        return F.layer_norm(
            states,
            states.shape[-1:],
            self.weight(name + ".weight"),
            self.weight(name + ".bias"),
            self.shape.norm_epsilon,
        )


def _places(shape: EyeShape) -> Tensor:
    """Sines and cosines of a patch's row and column, so that neighbours are alike from the start."""
    count = shape.image_size // shape.patch_size
    quarter = shape.n_embd // 4
    spots = torch.arange(count).float() / count
    angles = spots[:, None] * math.pi * 2 ** torch.linspace(-1, 1.5, quarter)
    waves = torch.cat([angles.sin(), angles.cos()], -1)
    rows, columns = waves[:, None].expand(-1, count, -1), waves[None].expand(count, -1, -1)
    return 0.5 * torch.cat([rows, columns], -1).reshape(count * count, -1)


def _attribute(name: str) -> str:
    """Parameter names may not hold dots."""
    return name.replace(".", "__")
