"""The head in torch, with the arithmetic of llama.cpp's graph for GLM-4.5 (src/models/glm4-moe.cpp, graph_mtp)."""

# The training packages are apart from the product's environment, in which types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.recipe.gguf_file import LlamaShape
from models.recipe.head.head_file import HeadShape


class Head(nn.Module):
    """Embeddings of tokens, and hidden states of the tokens before them, to hidden states of the next ones."""

    def __init__(self, model: LlamaShape, *, seed: int) -> None:
        super().__init__()
        self.shape = HeadShape(model.n_embd, model.n_head)
        self._epsilon = model.norm_epsilon
        generator = torch.Generator().manual_seed(seed)
        for name, dims in self.shape.tensor_shapes().items():
            weight = torch.ones(dims)
            if len(dims) > 1:
                writes_residual = "attn_output" in name or "ffn_down" in name
                weight.normal_(0.0, 0.005 if writes_residual else 0.05, generator=generator)
            self.register_parameter(name.replace(".", "__"), nn.Parameter(weight))
        width = model.n_embd // model.n_head
        self._frequencies = model.rope_base ** (-torch.arange(0, width, 2).float() / width)

    def weight(self, name: str) -> Tensor:
        """The parameter of a GGUF tensor name, without ``.weight``."""
        return self.get_parameter(name.replace(".", "__") + "__weight")

    def forward(self, embeddings: Tensor, hidden: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        """Normalised states (batch, length, n_embd). ``mask`` is added to the scores, (length, length)."""
        both = torch.cat([self._norm("nextn.enorm", embeddings), self._norm("nextn.hnorm", hidden)], -1)
        states = F.linear(both, self.weight("nextn.eh_proj"))
        states = states + self._attention(self._norm("attn_norm", states), positions, mask)
        inner = self._norm("post_attention_norm", states)
        states = states + self._shared(inner) + self._routed(inner)
        return self._norm("nextn.shared_head_norm", states)

    def _norm(self, name: str, states: Tensor) -> Tensor:
        return F.rms_norm(states, states.shape[-1:], self.weight(name), self._epsilon)

    def _attention(self, states: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = states.shape
        heads = self.shape.n_head
        queries, keys, values = (
            F.linear(states, self.weight(f"attn_{part}")).view(batch, length, heads, -1).transpose(1, 2)
            for part in "qkv"
        )
        angles = positions[:, None].float() * self._frequencies
        turns = angles.cos(), angles.sin()
        queries, keys = _turned(queries, turns), _turned(keys, turns)
        scores = queries @ keys.transpose(-1, -2) * (width // heads) ** -0.5 + mask
        mixed = (scores.softmax(-1) @ values).transpose(1, 2).reshape(batch, length, width)
        return F.linear(mixed, self.weight("attn_output"))

    def _shared(self, states: Tensor) -> Tensor:
        gate, up = (F.linear(states, self.weight(f"ffn_{part}_shexp")) for part in ("gate", "up"))
        return F.linear(F.silu(gate) * up, self.weight("ffn_down_shexp"))

    def _routed(self, states: Tensor) -> Tensor:
        gate, up = (F.linear(states, self.weight(f"ffn_{part}_exps")[0]) for part in ("gate", "up"))
        share = F.linear(states, self.weight("ffn_gate_inp")).sigmoid()
        return share * F.linear(F.silu(gate) * up, self.weight("ffn_down_exps")[0])


def _turned(heads: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    cosines, sines = turns
    first, second = heads.chunk(2, dim=-1)
    return torch.cat([first * cosines - second * sines, first * sines + second * cosines], -1)
