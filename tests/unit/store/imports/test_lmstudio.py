"""Finding LM Studio's models and its folders."""

from __future__ import annotations

import json
from pathlib import Path

from jan_serve.store.imports.finders import find
from jan_serve.store.imports.lmstudio import lmstudio_folders
from tests.unit.store.imports.support import MODEL, write


def test_lmstudio(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    write(folder / "pub" / "Repo-GGUF" / "m-Q4_K_M.gguf", MODEL)
    write(folder / "pub" / "Repo-GGUF" / "mmproj-m-f16.gguf", MODEL)
    write(folder / "pub" / "Repo-GGUF" / "model.safetensors", b"")
    write(folder / "loose.gguf", MODEL)
    (model,) = find("lmstudio", [folder])
    assert model.files[0].name == "pub/Repo-GGUF/m-Q4_K_M.gguf"
    assert model.projector is not None and model.projector.path.name == "mmproj-m-f16.gguf"


def test_where_lmstudio_keeps_its_models(tmp_path: Path) -> None:
    assert lmstudio_folders(tmp_path) == (tmp_path / ".lmstudio/models", tmp_path / ".cache/lm-studio/models")
    elsewhere, downloads = tmp_path / "elsewhere", tmp_path / "downloads"
    write(tmp_path / ".lmstudio-home-pointer", f"{elsewhere}\n")
    write(elsewhere / "settings.json", json.dumps({"downloadsFolder": str(downloads), "other": 1}))
    assert lmstudio_folders(tmp_path)[:2] == (downloads, elsewhere / "models")
    for bad in (b"relative/path", b"\0", b""):
        write(tmp_path / ".lmstudio-home-pointer", bad)
        assert lmstudio_folders(tmp_path)[0] == tmp_path / ".lmstudio/models"
    write(tmp_path / ".lmstudio" / "settings.json", "{")
    assert lmstudio_folders(tmp_path)[0] == tmp_path / ".lmstudio/models"
