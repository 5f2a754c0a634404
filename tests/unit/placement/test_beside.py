"""Memory for a projector, a draft model and the buffer of a head."""

from __future__ import annotations

from pathlib import Path

import msgspec

from jan_serve.core.models.model_parts import ModelParts
from jan_serve.ipc.messages import EngineSettings
from jan_serve.placement.beside import HEAD_BATCH, bytes_beside


def test_files_and_their_buffers_count_and_a_head_only_without_a_draft_model(tmp_path: Path) -> None:
    projector, draft = tmp_path / "projector", tmp_path / "draft"
    projector.write_bytes(bytes(400))
    draft.write_bytes(bytes(4_000))
    parts = ModelParts(n_vocab=100, width=10, n_ahead=1)
    settings = EngineSettings(parts=parts, mtp="auto")
    head = 4 * HEAD_BATCH * 120
    assert bytes_beside(settings) == head
    seeing = msgspec.structs.replace(settings, projector=str(projector))
    assert bytes_beside(seeing) == head + 500
    assert bytes_beside(msgspec.structs.replace(seeing, draft_path=str(draft))) == 500 + 5_000
    assert bytes_beside(msgspec.structs.replace(settings, mtp="off")) == 0


def test_a_file_that_cannot_be_read_counts_as_nothing(tmp_path: Path) -> None:
    assert bytes_beside(EngineSettings(projector=str(tmp_path / "gone"))) == 0
