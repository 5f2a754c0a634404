from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.store.imports.support import COMMIT, DIGEST, MODEL, ollama_model, write


@pytest.fixture
def ollama(tmp_path: Path) -> Path:
    """A models folder of Ollama."""
    folder = tmp_path / "ollama"
    write(folder / "blobs" / f"sha256-{DIGEST}", MODEL)
    write(folder / "blobs" / f"sha256-{'1' * 64}", MODEL)
    model = ("model", f"sha256:{DIGEST}")
    ollama_model(folder, "registry.ollama.ai/library/llama3.2/1b", model, ("template", "sha256:" + "2" * 64))
    ollama_model(
        folder, "registry.ollama.ai/someone/vision/latest", model, ("projector", "sha256:" + "1" * 64)
    )
    ollama_model(folder, "hf.co/org/repo/Q4_K_M", model)
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A Hugging Face cache."""
    repository = tmp_path / "hub" / "models--org--Repo-GGUF"
    blob = write(repository / "blobs" / DIGEST, MODEL)
    for commit in ("f" * 40, COMMIT):
        link = repository / "snapshots" / commit / "m-Q8_0.gguf"
        link.parent.mkdir(parents=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    write(repository / "refs" / "main", COMMIT)
    write(tmp_path / "hub" / "datasets--org--x" / "refs" / "main", COMMIT)
    return tmp_path / "hub"
