"""Offers the fixtures to the tests of the page; without playwright no test is collected, and the header says so."""

from __future__ import annotations

from importlib.util import find_spec

HAS_PLAYWRIGHT = find_spec("playwright") is not None

if HAS_PLAYWRIGHT:
    from tests.page.fixtures import browser, built_page, folder, hub, keyed_url, shelf, tab, url

    __all__ = ["browser", "built_page", "folder", "hub", "keyed_url", "shelf", "tab", "url"]
else:
    collect_ignore_glob = ["test_*.py"]


def pytest_report_header() -> list[str]:
    """The header line without playwright."""
    return [] if HAS_PLAYWRIGHT else ["page: playwright is not installed, the tests of the page are left out"]
