"""The server dies under the page, and comes back."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.page.fixtures import ENDLESS, N_CTX, START_S
from tests.page.support import CHATS, WAIT_MS, opened_tab
from tests.support.servers.served import serving

FLAGS = ("--threads", "1", "--n-ctx", str(N_CTX), "--model", "jan-tiny")


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_an_answer_that_breaks_off_is_said_to_and_the_next_one_needs_no_reload(
    browser: Browser, built_page: None, tmp_path: Path, end: signal.Signals
) -> None:
    with serving(tmp_path, "--port", "0", "--drain-timeout-s", "0", *FLAGS) as server:
        url = server.url(START_S)
        with opened_tab(browser, url) as tab:
            tab.expected += ["ERR_", "503"]
            tab.page.route(CHATS, _long)
            tab.ask("Tell me everything.")
            expect(tab.answers.locator(".markdown")).not_to_be_empty()
            server.process.send_signal(end)
            server.wait()
            expect(tab.answers.get_by_role("alert")).to_be_visible(timeout=WAIT_MS)
            tab.page.unroute(CHATS)
            tab.page.get_by_role("button", name="Regenerate").last.click()
            expect(tab.answers.get_by_role("alert")).to_contain_text("cannot be reached", timeout=WAIT_MS)
            with serving(tmp_path, "--port", str(urlsplit(url).port), *FLAGS) as again:
                assert again.url(START_S) == url
                tab.page.get_by_role("button", name="Regenerate").last.click()
                expect(tab.answers.get_by_role("alert")).to_have_count(0, timeout=WAIT_MS)
                tab.wait_for_answer()
                tab.show("Models")
                expect(tab.page.get_by_role("listitem", name="jan-tiny", exact=True)).to_be_visible()
                tab.show("Server")
                expect(tab.page.get_by_text("jan-serve 0.")).to_be_visible()


def _long(route: Route) -> None:
    route.continue_(post_data=json.dumps({**json.loads(route.request.post_data or ""), **ENDLESS}))
