"""What a model is made of, from its header: the sizes that decide where its parts go."""

from __future__ import annotations

import msgspec


class LayerParts(msgspec.Struct, frozen=True, array_like=True):
    """A block. Sizes in bytes.

    dense: the weights that each token reads (attention, norms, router, shared experts). experts: of a mixture, of
    which a token reads a few. k_elements, v_elements: of one token in the KV cache. state_elements: float32 values of a
    sequence's recurrent state.
    """

    dense: int
    experts: int = 0
    k_elements: int = 0
    v_elements: int = 0
    state_elements: int = 0

    @property
    def weights(self) -> int:
        return self.dense + self.experts


class ModelParts(msgspec.Struct, frozen=True):
    """layers: first to last. Sizes in bytes.

    input_bytes: the token embeddings and all else that is read in main memory. output_bytes: the output layer; with
    tied_output it is the token embeddings, which take main memory once, and a device has a copy.
    largest_tensor: of the blocks. width: the most values that a token has at once within a block.
    n_ahead: of the last layers, those that predict further tokens (MTP), if their tensors are there. They are empty
    unless they are to be loaded.
    pinned: weights that the user's patterns put on a device, by its name; no other size includes them.
    """

    layers: tuple[LayerParts, ...] = ()
    input_bytes: int = 0
    output_bytes: int = 0
    tied_output: bool = False
    largest_tensor: int = 0
    n_expert: int = 0
    n_expert_used: int = 0
    n_embd: int = 0
    n_vocab: int = 0
    n_head: int = 0
    width: int = 0
    pinned: tuple[tuple[str, int], ...] = ()
    n_ahead: int = 0

    @property
    def weights(self) -> int:
        """All weights, each once."""
        output = 0 if self.tied_output else self.output_bytes
        return (
            sum(layer.weights for layer in self.layers)
            + self.input_bytes
            + output
            + sum(size for _, size in self.pinned)
        )

    @property
    def has_experts(self) -> bool:
        return any(layer.experts for layer in self.layers)
