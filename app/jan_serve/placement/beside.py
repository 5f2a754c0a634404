"""What a load needs beside the model itself: a projector, a draft model, the buffer of the model's own head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from jan_serve.ipc.messages import EngineSettings

HEAD_BATCH: Final = 64
"""Tokens that a head reads at once: its compute buffer has a row of logits for each."""

HEAD_DRAFT: Final = 4
"""Tokens that a head drafts at most."""


def bytes_beside(settings: EngineSettings, size_of: Callable[[str], int]) -> int:
    """size_of: bytes of a file, 0 if it cannot be read. Their buffers take a quarter more.

    The weights and cells of the head are among the model's parts.
    """
    files = (settings.projector, settings.draft_path)
    return _head_buffer(settings) + sum(size_of(file) * 5 // 4 for file in files if file is not None)


def wants_head(settings: EngineSettings) -> bool:
    """Whether the model's own head is loaded with it, if it has one."""
    return settings.mtp != "off" and settings.draft_path is None


def states_of_sequence(settings: EngineSettings) -> int:
    """Recurrent states that are kept of each sequence: with a head also those before each drafted token."""
    return 1 + HEAD_DRAFT if wants_head(settings) and settings.parts.n_ahead else 1


def _head_buffer(settings: EngineSettings) -> int:
    parts = settings.parts
    return 4 * HEAD_BATCH * (parts.n_vocab + 2 * parts.width) if wants_head(settings) and parts.n_ahead else 0
