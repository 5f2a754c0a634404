"""What a load needs beside the model itself: a projector, a draft model, the buffer of the model's own head."""

from __future__ import annotations

from collections.abc import Callable

from jan_serve.ipc.messages import EngineSettings
from jan_serve.placement.heads import head_buffer


def bytes_beside(settings: EngineSettings, size_of: Callable[[str], int]) -> int:
    """Bytes of the projector, the draft model and the head's buffer. size_of: of a file; 0 if it cannot be read.

    Buffers of files take a quarter more. The weights and cells of the head are among the model's parts.
    """
    files = (settings.projector, settings.draft_path)
    return head_buffer(settings) + sum(size_of(file) * 5 // 4 for file in files if file is not None)
