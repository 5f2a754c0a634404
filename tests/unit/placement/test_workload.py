"""Memory for a projector, a draft model and the buffer of a head."""

from __future__ import annotations

import msgspec

from jan_serve.core.placement import ModelParts
from jan_serve.ipc.messages import EngineSettings
from jan_serve.placement.workload import HEAD_BATCH, bytes_beside

SIZES = {"p": 400, "d": 4_000}


def test_files_and_their_buffers_count_and_a_head_only_without_a_draft_model() -> None:
    parts = ModelParts(n_vocab=100, width=10, n_ahead=1)
    settings = EngineSettings(parts=parts, mtp="auto")
    head = 4 * HEAD_BATCH * 120
    assert bytes_beside(settings, SIZES.__getitem__) == head
    assert bytes_beside(msgspec.structs.replace(settings, projector="p"), SIZES.__getitem__) == head + 500
    both = msgspec.structs.replace(settings, projector="p", draft_path="d")
    assert bytes_beside(both, SIZES.__getitem__) == 500 + 5_000
    assert bytes_beside(msgspec.structs.replace(settings, mtp="off"), SIZES.__getitem__) == 0
