"""The text model in training: the weights of its GGUF, and embeddings in place of ids."""

# The training packages are apart from the product's environment, in which types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from models.recipe.gguf_file import LlamaShape
from models.recipe.model import Rotation, in_halves
from models.recipe.vocabulary import Vocabulary


class TextModel:
    """A llama-architecture GGUF with a tied embedding. Gradients flow to its input, and to :meth:`learned`.

    ``precision`` is that of the matrix products; the residual stream stays float32.
    """

    def __init__(self, path: Path, *, precision: torch.dtype = torch.float32) -> None:
        reader = gguf.GGUFReader(path)
        fields = {name: field.contents() for name, field in reader.fields.items()}
        merges = (merge.split(" ") for merge in fields["tokenizer.ggml.merges"])
        self.vocabulary = Vocabulary.from_merges((left, right) for left, right in merges)
        self.precision = precision
        self.shape = LlamaShape(
            len(self.vocabulary.tokens),
            fields["llama.embedding_length"],
            fields["llama.block_count"],
            fields["llama.attention.head_count"],
            fields["llama.feed_forward_length"],
            fields["llama.context_length"],
            fields["llama.rope.freq_base"],
            fields["llama.attention.layer_norm_rms_epsilon"],
        )
        weights = {
            tensor.name: torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
            for tensor in reader.tensors
        }
        self.embedding = weights["token_embd.weight"]
        self._last_norm = weights["output_norm.weight"]
        self._blocks = [self._block(weights, f"blk.{layer}.") for layer in range(self.shape.n_layer)]
        width = self.shape.n_embd // self.shape.n_head
        self._frequencies = self.shape.rope_base ** (-torch.arange(0, width, 2).float() / width)

    def _block(self, weights: dict[str, Tensor], name: str) -> dict[str, Tensor]:
        """Fused products; query and key rows with the halves of a head apart, as in :mod:`models.recipe.model`."""
        attention = [
            *(self._in_halves(weights[f"{name}attn_{part}.weight"]) for part in "qk"),
            weights[f"{name}attn_v.weight"],
        ]
        return {
            "attn_norm": weights[name + "attn_norm.weight"],
            "attn": torch.cat(attention),
            "attn_output": weights[name + "attn_output.weight"],
            "ffn_norm": weights[name + "ffn_norm.weight"],
            "ffn_in": torch.cat([weights[name + "ffn_gate.weight"], weights[name + "ffn_up.weight"]]),
            "ffn_down": weights[name + "ffn_down.weight"],
        }

    def _in_halves(self, weight: Tensor) -> Tensor:
        rows, columns = weight.shape
        return weight.view(self.shape.n_head, -1, 2, columns).transpose(1, 2).reshape(rows, columns)

    def _in_pairs(self, weight: Tensor) -> Tensor:
        rows, columns = weight.shape
        return weight.view(self.shape.n_head, 2, -1, columns).transpose(1, 2).reshape(rows, columns)

    def learned(self) -> dict[str, Tensor]:
        """The weights of the blocks, from now on with gradients. The embedding stays: it is what copies words."""
        found = {
            f"{layer}.{name}": weight
            for layer, block in enumerate(self._blocks)
            for name, weight in block.items()
        }
        for weight in found.values():
            weight.requires_grad_()
        return found

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Set the weights of the blocks, by the names of :meth:`learned`."""
        with torch.no_grad():
            for name, weight in weights.items():
                layer, part = name.split(".")
                self._blocks[int(layer)][part].copy_(weight)

    def tensors(self) -> dict[str, NDArray[np.float32]]:
        """Weights by GGUF name, in llama.cpp's row order."""
        found = {"token_embd.weight": self.embedding, "output_norm.weight": self._last_norm}
        for layer, block in enumerate(self._blocks):
            parts: dict[str, Tensor] = dict(
                zip(("attn_q", "attn_k", "attn_v"), block["attn"].chunk(3), strict=True)
            )
            parts |= {name: self._in_pairs(parts[name]) for name in ("attn_q", "attn_k")}
            parts |= dict(zip(("ffn_gate", "ffn_up"), block["ffn_in"].chunk(2), strict=True))
            parts |= {name: block[name] for name in ("attn_norm", "attn_output", "ffn_norm", "ffn_down")}
            found |= {f"blk.{layer}.{name}.weight": weight for name, weight in parts.items()}
        return {name: weight.detach().numpy() for name, weight in found.items()}

    def embedded(self, ids: Tensor) -> Tensor:
        """The input of :meth:`hidden` for ids."""
        return F.embedding(ids, self.embedding)

    def logits(self, hidden: Tensor) -> Tensor:
        """The logits of last states, in float32."""
        return self._product(hidden, self.embedding).float()

    def hidden(
        self, states: Tensor, positions: Tensor, mask: Tensor, *, wanted: Tensor | None = None
    ) -> Tensor:
        """Normalised last states (batch, length, n_embd) of embeddings, or (count, n_embd) of the ``wanted`` places.

        ``positions`` are (batch, length); ``mask`` is added to the scores, (batch, length, length), and hides all later
        ones; ``wanted`` is a mask (batch, length).
        """
        angles = positions[..., None].float() * self._frequencies
        turns = angles.cos()[:, None].to(self.precision), angles.sin()[:, None].to(self.precision)
        mask = mask.to(self.precision)
        for block in self._blocks:
            mixed = self._attention(block, self._norm(block["attn_norm"], states), turns, mask)
            if wanted is not None and block is self._blocks[-1]:
                states, mixed = states[wanted], mixed[wanted]
            states = states + self._product(mixed, block["attn_output"])
            inner = self._product(self._norm(block["ffn_norm"], states), block["ffn_in"])
            gate, up = inner.chunk(2, -1)
            states = states + self._product(F.silu(gate) * up, block["ffn_down"])
        return self._norm(self._last_norm, states)

    def _product(self, states: Tensor, weight: Tensor) -> Tensor:
        return F.linear(states.to(self.precision), weight.to(self.precision))

    def _norm(self, weight: Tensor, states: Tensor) -> Tensor:
        return F.rms_norm(states, states.shape[-1:], weight, self.shape.norm_epsilon)

    def _attention(
        self, block: dict[str, Tensor], states: Tensor, turns: tuple[Tensor, Tensor], mask: Tensor
    ) -> Tensor:
        batch, length, width = states.shape
        heads = self.shape.n_head
        fused = self._product(states, block["attn"]).view(batch, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
        queries, keys = Rotation.apply(fused[:2], *turns).flatten(1, 2)
        queries, values = queries * (width // heads) ** -0.5, fused[2].flatten(0, 1)

        def attend(ours: slice, theirs: slice) -> Tensor:
            scores = torch.bmm(queries[:, ours], keys[:, theirs].transpose(1, 2))
            scores.view(batch, heads, *scores.shape[1:]).add_(mask[:, None, ours, theirs])
            return torch.bmm(scores.softmax(-1), values[:, theirs])

        mixed = in_halves(attend, length)
        return mixed.view(batch, heads, length, -1).transpose(1, 2).reshape(batch, length, width)


def read_plainly(text: TextModel, ids: Tensor, mask: Tensor, *, wanted: Tensor | None = None) -> Tensor:
    """The last states of ids (batch, length), of which ``mask`` says what each sees: as :meth:`TextModel.hidden`."""
    return text.hidden(text.embedded(ids), torch.arange(ids.shape[1]).expand(ids.shape), mask, wanted=wanted)
