"""Models that are served from another file than their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.core.models import ModelSource
from jan_serve.supervisor.models.updated_weights import UpdatedWeights


@pytest.fixture
def own(tmp_path: Path) -> ModelSource:
    """The model `a`, with its own file."""
    path = tmp_path / "a.gguf"
    path.write_bytes(b"old")
    return ModelSource(name="a", path=str(path), revision=(0,))


def test_an_update_is_another_file_and_revision_until_it_is_undone(own: ModelSource, tmp_path: Path) -> None:
    weights = UpdatedWeights()
    other = ModelSource(name="b", path=str(tmp_path / "b.gguf"))
    undo_first = weights.update(own, "/updated-1", 1)
    first = weights.current(own)
    assert (first.path, first.name) == ("/updated-1", "a")
    assert first.revision != own.revision
    assert weights.current(other) == other
    undo_second = weights.update(first, "/updated-2", 2)
    second = weights.current(own)
    assert second.path == "/updated-2"
    assert second.revision not in (own.revision, first.revision)
    undo_second()
    assert weights.current(own) == first
    undo_first()
    assert weights.current(own) == own
    undo_first()
    assert weights.current(own) == own, "there is no update to undo"


def test_a_file_that_is_replaced_is_newer_than_the_update(own: ModelSource) -> None:
    weights = UpdatedWeights()
    undo = weights.update(own, "/updated-1", 1)
    changed = ModelSource(name="a", path=own.path, revision=(1,))
    assert weights.current(changed).path == "/updated-1", "settings changed, the file did not"
    Path(own.path).write_bytes(b"newer")
    assert weights.current(own) == own
    Path(own.path).write_bytes(b"old")
    assert weights.current(own) == own
    weights.update(own, "/updated-2", 2)
    undo()
    assert weights.current(own).path == "/updated-2", "only its own update is undone"
