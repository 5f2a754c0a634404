"""The llama architecture in torch, as small as it gets: RMSNorm, rotary positions, SwiGLU, tied embedding.

Parameters carry their GGUF names. Rotation pairs the two halves of a head, which vectorises; llama.cpp pairs
neighbours for ``llama``, so :func:`tensors_of` reorders the query and key rows.
"""

# The training packages are apart from the product's environment, in which types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.recipe.gguf_file import LlamaShape


class TinyLlama(nn.Module):
    """Token ids (batch, length) to logits (batch, length, n_vocab)."""

    def __init__(self, shape: LlamaShape, *, seed: int) -> None:
        super().__init__()
        self.shape = shape
        generator = torch.Generator().manual_seed(seed)
        for name, dims in shape.tensor_shapes().items():
            if len(dims) == 1:
                weight = torch.ones(dims)
            else:
                writes_residual = "attn_output" in name or "ffn_down" in name
                spread = 0.02 / sqrt(2 * shape.n_layer) if writes_residual else 0.02
                weight = torch.empty(dims).normal_(0.0, spread, generator=generator)
            self.register_parameter(_attribute(name), nn.Parameter(weight))
        head_width = shape.n_embd // shape.n_head
        frequencies = shape.rope_base ** (-torch.arange(0, head_width, 2).float() / head_width)
        angles = torch.arange(shape.n_ctx).float()[:, None] * frequencies
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)

    def weight(self, name: str) -> Tensor:
        """The parameter of a GGUF tensor name."""
        return self.get_parameter(_attribute(name))

    def hidden(
        self,
        ids: Tensor,
        *,
        mask: Tensor | None = None,
        wanted: Tensor | None = None,
        precision: torch.dtype = torch.float32,
    ) -> Tensor:
        """Normalised last hidden states (batch, length, n_embd), or (count, n_embd) of the places that are ``wanted``.

        ``mask`` (batch, length, length) is added to the scores of attention, and hides all later ones; without one, a
        token sees itself and what is before it. ``wanted`` says which places (batch, length): the last block's
        feed-forward reads no others.
        ``precision`` is that of the matrix products; the residual stream stays float32.
        """
        states = F.embedding(ids, self.weight("token_embd.weight"))
        length = ids.shape[1]
        ahead = torch.full((1, length, length), float("-inf")).triu(1)
        scores_mask = (ahead if mask is None else mask.repeat_interleave(self.shape.n_head, 0)).to(precision)
        for layer in range(self.shape.n_layer):
            block = f"blk.{layer}."
            mixed = self._attention(block, self._norm(block + "attn_norm", states).to(precision), scores_mask)
            if wanted is not None and layer == self.shape.n_layer - 1:
                states, mixed = states[wanted], mixed[wanted]
            states = states + F.linear(mixed, self.weight(block + "attn_output.weight").to(precision))
            states = states + self._feed_forward(block, self._norm(block + "ffn_norm", states).to(precision))
        return self._norm("output_norm", states)

    def forward(self, ids: Tensor) -> Tensor:
        return F.linear(self.hidden(ids), self.weight("token_embd.weight"))

    def _norm(self, name: str, states: Tensor) -> Tensor:
        return F.rms_norm(states, states.shape[-1:], self.weight(name + ".weight"), self.shape.norm_epsilon)

    def _attention(self, block: str, states: Tensor, mask: Tensor) -> Tensor:
        # Written out: on CPUs torch's fused attention is slower at these sizes in bfloat16.
        batch, length, width = states.shape
        fused = torch.cat([self.weight(f"{block}attn_{part}.weight") for part in "qkv"]).to(states.dtype)
        projected = (
            F.linear(states, fused).view(batch, length, 3, self.shape.n_head, -1).permute(2, 0, 3, 1, 4)
        )
        turns = (
            self.get_buffer("cosines")[:length].to(states.dtype),
            self.get_buffer("sines")[:length].to(states.dtype),
        )
        turned, values = Rotation.apply(projected[:2], *turns), projected[2].flatten(0, 1)
        queries, keys = turned.flatten(1, 2)
        scale = (width // self.shape.n_head) ** -0.5

        def attend(ours: slice, theirs: slice) -> Tensor:
            scores = torch.baddbmm(
                mask[:, ours, theirs], queries[:, ours], keys[:, theirs].transpose(1, 2), alpha=scale
            )
            return torch.bmm(scores.softmax(-1), values[:, theirs])

        mixed = in_halves(attend, length)
        return mixed.view(batch, self.shape.n_head, length, -1).transpose(1, 2).reshape(batch, length, width)

    def _feed_forward(self, block: str, states: Tensor) -> Tensor:
        gate, up, down = (
            self.weight(f"{block}ffn_{part}.weight").to(states.dtype) for part in ("gate", "up", "down")
        )
        return F.linear(F.silu(F.linear(states, gate)) * F.linear(states, up), down)


def in_halves(attend: Callable[[slice, slice], Tensor], length: int) -> Tensor:
    """What ``attend`` mixes for queries from keys, by their places: no token sees later ones, so the first half of the
    queries needs only half of the keys. More parts gain nothing."""
    middle = length // 2
    first, second = slice(0, middle), slice(middle, length)
    return torch.cat([attend(first, first), attend(second, slice(0, length))], -2)


class Rotation(torch.autograd.Function):
    """Rotary positions of heads (..., length, width), whose halves make pairs; angles are (..., length, width / 2).

    The gradient turns back, so nothing of the heads is kept for it, and neither way makes copies of halves.
    """

    @staticmethod
    def forward(context: Any, heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        context.save_for_backward(cosines, sines)
        return _turned(heads, cosines, sines)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        cosines, sines = context.saved_tensors
        return _turned(gradients[0], cosines, -sines), None, None


def _turned(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    turned = torch.empty(heads.shape, dtype=heads.dtype)
    for half, (one, other), sign in zip(
        turned.chunk(2, -1), (heads.chunk(2, -1), heads.chunk(2, -1)[::-1]), (-1, 1), strict=True
    ):
        torch.mul(one, cosines, out=half).addcmul_(other, sines, value=sign)
    return turned


def _attribute(name: str) -> str:
    """Parameter names may not hold dots."""
    return name.replace(".", "__")


def tensors_of(model: TinyLlama) -> dict[str, Tensor]:
    """Weights by GGUF name, in llama.cpp's row order."""
    return {
        name: _in_pairs(name, model.weight(name).detach(), model.shape)
        for name in model.shape.tensor_shapes()
    }


def _in_pairs(name: str, weight: Tensor, shape: LlamaShape) -> Tensor:
    """Rows i and i + half of every head become neighbours in the query and key matrices."""
    if not name.endswith(("attn_q.weight", "attn_k.weight")):
        return weight
    rows, columns = weight.shape
    return weight.view(shape.n_head, 2, -1, columns).transpose(1, 2).reshape(rows, columns)
