"""A load needs this beside the model itself: heads for further tokens (MTP), a projector, a draft model.

Says which heads draft, and what they take.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from jan_serve.core.placement import ModelParts
from jan_serve.ipc.messages import DraftMode, EngineSettings

HEAD_BATCH: Final = 64
"""Tokens that a head reads at once: its compute buffer has a row of logits for each."""

HEAD_DRAFT: Final = 4
"""Tokens that a head drafts at most."""

_TRIED: Final = frozenset({"glm4moe", "qwen35"})
_KNOWN: Final = _TRIED | {
    "cohere2moe",
    "deepseek2",
    "deepseek32",
    "glm-dsa",
    "hy_v3",
    "nemotron_h_moe",
    "qwen35moe",
}
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

    Buffers of files take a quarter more. The weights and cells of the head are among the model's parts.
    """
    files = (settings.projector, settings.draft_path)
    return head_buffer(settings) + sum(size_of(file) * 5 // 4 for file in files if file is not None)
