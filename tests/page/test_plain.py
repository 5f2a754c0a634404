"""The page of checkouts without node: a chat, against the fake of the built page's server."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from jan_serve.http.page_files import CONTENT_SECURITY_POLICY, PageFile, read_page
from tests.page.support import CHATS, WAIT_MS, stream_of

URL = "http://plain.invalid/"
FOLDER = Path(__file__).resolve().parents[2] / "web" / "plain"


@pytest.fixture
def page(browser: Browser) -> Generator[Page]:
    """The plain page, its files and answers served without a server. Fails for errors and violations of the policy."""
    files = read_page(FOLDER)
    problems: list[str] = []

    def serve(route: Route) -> None:
        name = route.request.url.removeprefix(URL).removeprefix("assets/") or "index.html"
        file: PageFile = files[name]
        headers = {"content-type": file.media_type, "content-security-policy": CONTENT_SECURITY_POLICY}
        route.fulfill(body=file.content, headers=headers)

    page = browser.new_page()
    page.set_default_timeout(WAIT_MS)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.route("**/*", serve)
    page.route("**/v1/models", lambda route: route.fulfill(json={"data": [{"id": "one"}, {"id": "<b>two"}]}))
    page.goto(URL)
    yield page
    page.close()
    assert problems == []


def test_a_chat(page: Page) -> None:
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(route.request.post_data or "")
        body = stream_of([{"role": "assistant"}, {"content": "<i>hello"}, {"content": " there"}], "stop")
        route.fulfill(content_type="text/event-stream", body=body)

    page.route(CHATS, answer)
    expect(page.get_by_label("Model")).to_contain_text("<b>two")
    page.get_by_label("Your question").fill("hi")
    page.get_by_label("Your question").press("Enter")
    expect(page.locator("article.assistant")).to_have_text("<i>hello there")
    page.get_by_label("Your question").fill("again")
    page.get_by_role("button", name="Send").click()
    expect(page.locator("article.assistant")).to_have_count(2)
    assert '"content":"<i>hello there"' in asked[1]
    page.get_by_role("button", name="New chat").click()
    expect(page.locator("article")).to_have_count(0)
