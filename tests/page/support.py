"""A tab of the page, and scripted answers."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Dialog, Locator, Page, Playwright, Route, expect

from tests.support.clients.raw_http import get

KEY = "page-test-key"
WAIT_MS = 30_000
"""The longest that anything may take on a busy machine."""

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
CHATS = re.compile(r"/v1/(chat/completions|responses)$")
"""Where a page asks for answers; that of `responses` if the server keeps the chats."""


class Tab:
    """A page that is open.

    `problems` collects what the page must not have: errors, violations of its policy, dialogs, requests to other hosts.
    Words of errors that a test provokes belong into `expected`.
    """

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.problems: list[str] = []
        self.expected: list[str] = []
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("console", self._console)
        page.on("dialog", self._dialog)
        page.on("request", lambda request: self._request(request.url))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not any(words in message.text for words in self.expected):
            self.problems.append(f"console: {message.text}")

    def _dialog(self, dialog: Dialog) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, url: str) -> None:
        # Blobs and data never leave the browser.
        if urlsplit(url).scheme in ("http", "https") and not url.startswith(self.url):
            self.problems.append(f"request to {url}")

    @property
    def question(self) -> Locator:
        """The field for questions."""
        return self.page.get_by_label("Your question", exact=True)

    @property
    def answers(self) -> Locator:
        """All answers."""
        return self.page.get_by_role("article", name="Answer")

    @property
    def picker(self) -> Locator:
        """The field for files of the question."""
        return self.page.locator("form.composer input[type=file]")

    def ask(self, text: str) -> None:
        """Type a question and send it; does not wait for the answer."""
        self.question.fill(text)
        # Without the list of models nothing can be sent yet.
        expect(self.page.get_by_role("button", name="Send")).to_be_enabled()
        self.question.press("Enter")

    def wait_for_answer(self) -> None:
        """Wait until the last answer is complete."""
        expect(self.page.get_by_role("button", name="Send")).to_be_visible()
        expect(self.page.get_by_role("button", name="Regenerate").last).to_be_visible()

    def show(self, view: str) -> None:
        """Go to a view by its link."""
        self.page.locator("nav").get_by_role("link", name=view).click()

    def answer_chats_with(self, *deltas: dict[str, Any], finish: str = "stop") -> list[dict[str, Any]]:
        """Answer all chats of this tab with these deltas. The list receives the requests."""
        requests: list[dict[str, Any]] = []

        def fulfil(route: Route) -> None:
            requests.append(json.loads(route.request.post_data or ""))
            made = response_of if route.request.url.endswith("/responses") else stream_of
            route.fulfill(content_type="text/event-stream", body=made(deltas, finish))

        self.page.route(CHATS, fulfil)
        return requests


def chromium(playwright: Playwright) -> Browser:
    """This system's Chromium, headless, or the one that the variable CHROMIUM names. Raises FileNotFoundError."""
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        raise FileNotFoundError("there is no Chromium (apt-get install chromium, or name one in CHROMIUM)")
    # Chromium refuses its own sandbox to root, and needs more /dev/shm than containers have.
    flags = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    return playwright.chromium.launch(executable_path=path, args=flags)


def stream_of(deltas: Sequence[dict[str, Any]], finish: str) -> str:
    """A stream of chunks."""
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    events = [json.dumps({"choices": [choice]}) for choice in choices]
    return "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"])


def response_of(deltas: Sequence[dict[str, Any]], finish: str) -> str:
    """The same of a response in the background."""
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"id": "resp_x", "status": "queued"}}
    ]
    for index, delta in enumerate(deltas):
        for name, kind in (("content", "output_text"), ("reasoning_content", "reasoning_text")):
            if name in delta:
                events.append({"type": f"response.{kind}.delta", "delta": delta[name]})
        for call in delta.get("tool_calls", ()):
            named = {"type": "function_call", "call_id": call["id"], "name": call["function"]["name"]}
            events.append({"type": "response.output_item.added", "output_index": index, "item": named})
            text = {"output_index": index, "delta": call["function"]["arguments"]}
            events.append({"type": "response.function_call_arguments.delta", **text})
    status = "incomplete" if finish == "length" else "completed"
    last = {"id": "resp_x", "status": status, "incomplete_details": {"reason": "max_output_tokens"}}
    events.append({"type": f"response.{status}", "response": last})
    numbered = ({"sequence_number": number, **event} for number, event in enumerate(events))
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in numbered)


def cancelled(url: str) -> float:
    """The number of requests that the server counts as cancelled."""
    lines = get(url, "/metrics").body.decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("jan_serve_cancelled_total")))


@contextmanager
def opened_tab(browser: Browser, url: str, **options: Any) -> Generator[Tab]:
    """A tab with a fresh profile. Fails at the end for anything that the page must not do."""
    # A service worker would pass requests by the tests' routes.
    options.setdefault("service_workers", "block")
    context = browser.new_context(**options)
    context.set_default_timeout(WAIT_MS)
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
    expect.set_options(timeout=WAIT_MS)
    try:
        tab = Tab(context.new_page(), url)
        tab.page.goto(url)
        yield tab
        assert not tab.problems, tab.problems
    finally:
        context.close()
