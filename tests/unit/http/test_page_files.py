"""Which files a page has, and who gets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.http.page_files import accepts_html, read_page
from tests.support.page_folder import BROWSER
from tests.support.page_folder import folder as folder

pytestmark = pytest.mark.anyio


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
