"""The page of a proxy: chat and nodes, and nothing that a proxy does not have."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.support.servers.proxied import proxying


def test_a_proxy_shows_its_nodes_and_why_one_gets_nothing(browser: Browser, tmp_path: Path) -> None:
    with proxying(tmp_path, "--node", "http://127.0.0.1:1") as proxy:
        page = browser.new_page()
        try:
            page.goto(proxy.url())
            views = page.get_by_role("navigation").locator(".views")
            expect(views.get_by_role("link")).to_have_text([" Chat", " Nodes"])
            views.get_by_role("link", name="Nodes").click()
            expect(page.get_by_role("heading", name="127.0.0.1:1")).to_be_visible()
            expect(page.get_by_text("cannot be reached")).to_be_visible(timeout=20_000)
        finally:
            page.close()
