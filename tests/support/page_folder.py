"""A folder with a page for browsers, and what a browser accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html><title>é</title>", encoding="utf-8")
    (tmp_path / "assets" / "page-ABCDEFGH.js").write_text("1")
    (tmp_path / "assets" / "plain.css").write_text("a{}")
    (tmp_path / "secret.txt").write_text("secret")
    return tmp_path
