"""Sizes of a model's parts with a context, and of what a load needs beside it: heads (MTP), projector, draft model."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Final, TypeVar

import msgspec

from jan_serve.core.placement import BYTES_PER_ELEMENT, ModelParts
from jan_serve.ipc.messages import DraftMode, EngineSettings

_Number = TypeVar("_Number", int, float)

_TYPICAL_TOKENS: Final = 2048
"""Tokens of context that a token reads, for the cost model."""
_BLOCK_WIDTH: Final = 8
"""Activations that ggml keeps at once, in widths of the embedding: as measured with llama.cpp's compute buffers."""


_INPUT_COPIES: Final = 4
"""Copies of inputs that ggml keeps (GGML_SCHED_MAX_COPIES)."""


class ContextSizes(msgspec.Struct, frozen=True, kw_only=True):
    """n_seqs: sequences with a recurrent state. n_states: states of each."""

    n_ctx: int
    type_k: str = "f16"
    type_v: str = "f16"
    n_ubatch: int = 512
    n_seqs: int = 1
    n_states: int = 1
    flash_attn: bool = True


class Workload:
    """Sums over ranges of units: the blocks in order, and the output layer as the last unit."""

    def __init__(self, parts: ModelParts, context: ContextSizes) -> None:
        self.parts = parts
        self.n_blocks = len(parts.layers)
        self.n_units = self.n_blocks + 1
        k_bytes = BYTES_PER_ELEMENT.get(context.type_k, 2.0)
        v_bytes = BYTES_PER_ELEMENT.get(context.type_v, 2.0)
        cell = [layer.k_elements * k_bytes + layer.v_elements * v_bytes for layer in parts.layers]
        state = [4 * layer.state_elements * context.n_seqs * context.n_states for layer in parts.layers]
        share = parts.share_of_experts
        tokens = min(context.n_ctx, _TYPICAL_TOKENS)
        self._dense = _sums([*(layer.dense for layer in parts.layers), parts.output_bytes])
        self._experts = _sums([*(layer.experts for layer in parts.layers), 0])
        cache = [int(context.n_ctx * cells) + states for cells, states in zip(cell, state, strict=True)]
        self._cache = _sums([*cache, 0])
        self._mixtures = _sums([*(int(layer.experts > 0) for layer in parts.layers), 0])
        read = [
            layer.dense + tokens * cells + 4.0 * layer.state_elements
            for layer, cells in zip(parts.layers, cell, strict=True)
        ]
        self._read = _sums([*read, float(parts.output_bytes)])
        self._read_experts = _sums([*(share * layer.experts for layer in parts.layers), 0.0])
        scores = 2 if context.flash_attn else 4 * (1 + parts.n_head)
        attention = context.n_ubatch * context.n_ctx * scores if any(cell) else 0
        width = max(_BLOCK_WIDTH * parts.n_embd, parts.width)
        self._in_blocks = 4 * context.n_ubatch * width
        self._with_output = 4 * context.n_ubatch * (parts.n_vocab + 2 * parts.n_embd)
        self._attention = attention
        mask = context.n_ubatch * context.n_ctx * (2 if context.flash_attn else 4) if any(cell) else 0
        self._inputs = mask + 4 * context.n_ubatch * parts.n_embd

    def dense(self, first: int, end: int) -> int:
        """Bytes of the weights that each token reads, of units first … end-1."""
        return self._dense[end] - self._dense[first]

    def experts(self, first: int, end: int) -> int:
        """Bytes of the experts of units first … end-1."""
        return self._experts[end] - self._experts[first]

    def cache(self, first: int, end: int) -> int:
        """Bytes of the KV cache and of recurrent states."""
        return self._cache[end] - self._cache[first]

    def mixtures(self, first: int, end: int) -> int:
        """The number of blocks with experts."""
        return self._mixtures[end] - self._mixtures[first]

    def read(self, first: int, end: int) -> float:
        """Bytes that a token reads, without experts."""
        return self._read[end] - self._read[first]

    def read_experts(self, first: int, end: int) -> float:
        """Bytes of experts that a token reads."""
        return self._read_experts[end] - self._read_experts[first]

    def compute(self, *, blocks: bool, output: bool, copies: bool = False) -> int:
        """Bytes of the compute buffer of a device with blocks, or the output layer, or both. copies: also of its
        inputs, so that several devices compute parts of a batch at the same time."""
        most = max(self._in_blocks if blocks else 0, self._with_output if output else 0)
        more = _INPUT_COPIES * self._inputs if copies else 0
        return most + (self._attention if blocks else 0) + more

    def first_experts(self, first: int, end: int, room: int) -> int:
        """The first unit from which on the experts of units up to `end` fit into `room` bytes."""
        if self.experts(first, end) <= room:
            return first
        low, high = first, end
        while low < high:
            middle = (low + high) // 2
            if self.experts(middle, end) <= room:
                high = middle
            else:
                low = middle + 1
        return low


def _sums(values: list[_Number]) -> list[_Number]:
    return [type(values[0])(0), *accumulate(values)]


HEAD_BATCH: Final = 64
"""Tokens that a head reads at once: its compute buffer has a row of logits for each."""

HEAD_DRAFT: Final = 4
"""Tokens that a head drafts at most."""

_TRIED: Final = frozenset({"glm4moe", "qwen35"})
_KNOWN: Final = _TRIED | set("cohere2moe deepseek2 deepseek32 glm-dsa hy_v3 nemotron_h_moe qwen35moe".split())
"""Architectures whose head llama.cpp computes (graph_mtp)."""
_ROLLED_BACK: Final = frozenset({"nemotron_h_moe", "qwen35", "qwen35moe"})
"""Those of them whose recurrent layers can drop a rejected draft (llm_arch_supports_rs_rollback)."""


def why_unused(architecture: str, parts: ModelParts, mode: DraftMode, *, has_draft_model: bool) -> str:
    """Why heads do not draft; "" if they may, or the model has none, or they are off."""
    if not parts.n_ahead or mode == "off":
        return ""
    if has_draft_model:
        return "a draft model drafts in its place"
    if architecture not in _ROLLED_BACK and any(layer.state_elements for layer in parts.layers):
        return f"llama.cpp cannot drop a rejected draft from the recurrent layers of {architecture}"
    if (count := parts.n_ahead) > 1:
        return f"it has {count} of them, of which each needs states of the one before, and one alone is supported"
    if architecture not in _KNOWN:
        return f"jan-serve does not know the head of {architecture}"
    if architecture not in _TRIED and mode == "auto":
        return f"the head of {architecture} was not tried: mtp = on uses it"
    return ""


def wants_head(settings: EngineSettings) -> bool:
    """Whether the model's own head is loaded with it, if it has one."""
    return settings.mtp != "off" and settings.draft_path is None


def head_buffer(settings: EngineSettings) -> int:
    """Bytes that a head computes in; 0 without one."""
    parts = settings.parts
    return 4 * HEAD_BATCH * (parts.n_vocab + 2 * parts.width) if wants_head(settings) and parts.n_ahead else 0


def states_of_sequence(settings: EngineSettings) -> int:
    """Recurrent states that are kept of each sequence: with a head also those before each drafted token."""
    return 1 + HEAD_DRAFT if wants_head(settings) and settings.parts.n_ahead else 1


def bytes_beside(settings: EngineSettings, size_of: Callable[[str], int]) -> int:
    """Bytes of the projector, the draft model and the head's buffer. size_of: of a file; 0 if it cannot be read.
    Buffers of files take a quarter more. The weights and cells of the head are among the model's parts."""
    files = (settings.projector, settings.draft_path)
    return head_buffer(settings) + sum(size_of(file) * 5 // 4 for file in files if file is not None)
