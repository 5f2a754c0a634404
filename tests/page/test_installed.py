"""The page can be installed, and opens without its server."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, expect

from tests.page.fixtures import START_S
from tests.page.support import Tab, opened_tab
from tests.support.servers.served import serving

FLAGS = ("--threads", "1", "--model", "jan-tiny")
WITHOUT_SERVER = ["ERR_", "Failed to load resource"]


def test_browsers_can_install_the_page(browser: Browser, url: str) -> None:
    with opened_tab(browser, url, service_workers="allow") as tab:
        session: Any = tab.page.context.new_cdp_session(tab.page)
        manifest = session.send("Page.getAppManifest")
        assert manifest["errors"] == []
        assert manifest["manifest"]["startUrl"] == f"{url}/"
        icons = manifest["manifest"]["icons"]
        assert {"192x192", "512x512"} <= {icon["sizes"] for icon in icons}
        for icon in icons:
            assert tab.page.request.get(icon["url"]).ok
        errors = session.send("Page.getInstallabilityErrors")["installabilityErrors"]
        # Contexts of tests are private windows, which install nothing.
        assert [error for error in errors if error["errorId"] != "in-incognito"] == []


def test_the_page_opens_without_its_server(browser: Browser, built_page: None, tmp_path: Path) -> None:
    with serving(tmp_path, "--port", "0", "--drain-timeout-s", "0", *FLAGS) as server:
        url = server.url(START_S)
        with opened_tab(browser, url, service_workers="allow") as tab:
            tab.expected += WITHOUT_SERVER
            tab.ask("Hello!")
            tab.wait_for_answer()
            wait_for_worker(tab)
            server.process.terminate()
            server.wait()
            tab.page.reload()
            expect(tab.page.get_by_text("The server cannot be reached").first).to_be_visible()
            tab.page.locator(".open-chat", has_text="Hello!").click()
            expect(tab.answers).not_to_be_empty()
            with serving(tmp_path, "--port", str(urlsplit(url).port), *FLAGS) as again:
                assert again.url(START_S) == url
                tab.page.reload()
                tab.ask("And now?")
                tab.wait_for_answer()


def wait_for_worker(tab: Tab) -> None:
    """Until the service worker has the page's files and answers for it."""
    tab.page.evaluate("navigator.serviceWorker.ready.then(({ active }) => active.state)")
    tab.page.wait_for_function("navigator.serviceWorker.controller !== null")
