from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty configuration file, used by default, with the files that `support.WHOLE` names beside it."""
    (tmp_path / "adapters").mkdir()
    for name in ("mine.jinja", "adapters/sql.gguf", "poet.gguf"):
        (tmp_path / name).write_text("x")
    path = tmp_path / "config.toml"
    path.write_text("")
    monkeypatch.setenv("JAN_SERVE_CONFIG", str(path))
    return path
