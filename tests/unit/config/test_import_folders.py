"""Where other programs keep models."""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.config import import_folders


def test_where_other_programs_keep_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "o"))
    monkeypatch.setenv("JAN_DATA_FOLDER", str(tmp_path / "j"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "h"))
    found = import_folders()
    assert (found.ollama, found.jan, found.hf_cache) == (
        (tmp_path / "o",),
        (tmp_path / "j",),
        (tmp_path / "h" / "hub",),
    )
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "c"))
    assert import_folders().hf_cache == (tmp_path / "c",)
    for name in ("OLLAMA_MODELS", "JAN_DATA_FOLDER", "HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert import_folders().hf_cache == (tmp_path / "x" / "huggingface" / "hub",)
    assert import_folders().ollama[0] == Path.home() / ".ollama" / "models"
