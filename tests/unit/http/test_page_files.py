"""Which files a page has, and who gets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.http.page_files import accepts_html, read_page

pytestmark = pytest.mark.anyio


BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html><title>é</title>", encoding="utf-8")
    (tmp_path / "assets" / "page-ABCDEFGH.js").write_text("1")
    (tmp_path / "assets" / "plain.css").write_text("a{}")
    (tmp_path / "secret.txt").write_text("secret")
    return tmp_path


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (BROWSER, True),
        ("text/html", True),
        ("application/json, text/html;q=0.1", True),
        ("TEXT/HTML; charset=utf-8", True),
        ("", False),
        ("*/*", False),
        ("text/*", False),
        ("application/json", False),
        ("text/html;q=0", False),
        ("text/html; q=0.000, */*", False),
        ("text/htmlx", False),
    ],
)
def test_who_is_a_browser(accept: str, expected: bool) -> None:
    assert accepts_html(accept) is expected


def test_files_are_read_once(folder: Path) -> None:
    assert sorted(read_page(folder)) == ["index.html", "page-ABCDEFGH.js", "plain.css"]
