from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.errors import InvalidModel
from jan_serve.resources import builtin_model
from jan_serve.store.gguf.projector_file import read_projector
from models.recipe.projector_fixtures import ProjectorKind, write_tiny_projector


@pytest.mark.parametrize("kind", ["mlp", "gemma3", "qwen2vl_merger"])
def test_a_projector_says_what_it_reads_and_whom_it_fits(kind: ProjectorKind, tmp_path: Path) -> None:
    path = tmp_path / "mmproj.gguf"
    write_tiny_projector(path, kind, n_embd=96)
    found = read_projector(path)
    assert (found.senses, found.width) == (("vision",), 96)
    assert found.fits(96)
    assert not found.fits(192)
    assert found.file_bytes == path.stat().st_size < found.memory_bytes


def test_other_files_are_no_projectors(tmp_path: Path) -> None:
    model = builtin_model()
    assert model is not None
    with pytest.raises(InvalidModel, match=r"jan-tiny.gguf is no multimodal projector"):
        read_projector(model)
    broken = tmp_path / "mmproj.gguf"
    broken.write_bytes(b"GGUF")
    with pytest.raises(InvalidModel):
        read_projector(broken)
