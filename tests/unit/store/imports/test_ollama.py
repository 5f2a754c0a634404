"""Finding Ollama's models, in folders as it lays them out."""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.store.imports.finders import find
from jan_serve.store.imports.link import ImportState, assess
from tests.unit.store.imports.support import DIGEST, by_label, ollama_model, write


def test_ollama(ollama: Path, tmp_path: Path) -> None:
    found = by_label(find("ollama", [ollama, ollama, tmp_path / "absent"]))
    assert set(found) == {"llama3.2:1b", "someone/vision:latest", "hf.co/org/repo:Q4_K_M"}
    plain = found["llama3.2:1b"]
    assert [(file.name, file.sha256) for file in plain.files] == [("ollama/llama3.2-1b.gguf", DIGEST)]
    vision = found["someone/vision:latest"]
    assert vision.files[0].name == "ollama/someone/vision-latest.gguf"
    assert (
        vision.projector is not None and vision.projector.name == "ollama/someone/mmproj-vision-latest.gguf"
    )


@pytest.mark.parametrize(
    "digest",
    ["sha256:../../../etc/passwd", "sha256:" + "A" * 64, "sha256-" + "0" * 64, "../x", "sha256:" + "0" * 65],
)
def test_ollama_digests_never_become_paths(tmp_path: Path, digest: str) -> None:
    ollama_model(tmp_path, "registry.ollama.ai/library/x/latest", ("model", digest))
    assert find("ollama", [tmp_path]) == []


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[" * 99_999, b"\xff", b"x" * (2 << 20), b'{"layers": [1]}']
)
def test_ollama_manifests_that_are_none_are_left_out(ollama: Path, content: bytes) -> None:
    write(ollama / "manifests/registry.ollama.ai/library/bad/latest", content)
    assert len(find("ollama", [ollama])) == 3


def test_ollama_models_with_adapters_are_shown_with_the_reason(ollama: Path, tmp_path: Path) -> None:
    layers = ("model", f"sha256:{DIGEST}"), ("adapter", "sha256:" + "1" * 64)
    ollama_model(ollama, "registry.ollama.ai/library/tuned/latest", *layers)
    looked_at = assess(by_label(find("ollama", [ollama]))["tuned:latest"], tmp_path / "models")
    assert (looked_at.state, looked_at.reason) == (
        ImportState.UNUSABLE,
        "it has an adapter, which would be lost",
    )
