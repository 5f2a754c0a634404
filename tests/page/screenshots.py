"""Pictures of the page for the documents, to be looked at: python -m tests.page.screenshots URL FOLDER.

The server has to have the built-in model. Some answers are written here, so that the pictures do not change with it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import Browser, expect, sync_playwright

from tests.page.support import CHATS, Tab, chromium, opened_tab
from tests.support.raw_http import post

_QUESTION = "Write a Python function for the Fibonacci numbers."
_ANSWER = '''\
Here is one that takes **linear** time:

```python
def fibonacci(n: int) -> list[int]:
    """The first n numbers of the sequence."""
    numbers = [0, 1]
    while len(numbers) < n:
        numbers.append(numbers[-1] + numbers[-2])
    return numbers[:n]
```

| way | time | memory |
|---|---|---|
| this one | O(n) | O(n) |
| recursive, without a cache | O(2ⁿ) | O(n) |
'''
_CALL = {"name": "weather", "arguments": '{"city": "Oslo", "unit": "celsius"}'}
_WIDE = {"width": 1200, "height": 760}
_SMALL = {"width": 390, "height": 760}


def chat(tab: Tab, folder: Path, name: str) -> None:
    """An answer with thoughts, code and a table."""
    thought = "They want the numbers of Fibonacci. A loop is best."
    tab.answer_chats_with({"reasoning_content": thought}, {"content": _ANSWER})
    tab.ask(_QUESTION)
    tab.wait_for_answer()
    expect(tab.answers.locator("table")).to_be_visible()
    tab.page.locator(".messages").evaluate("box => box.scrollTop = 0")
    tab.page.screenshot(path=folder / name)


def tools(tab: Tab, folder: Path) -> None:
    """A call that waits for its result."""
    tab.answer_chats_with({"tool_calls": [{"index": 0, "id": "1", "function": _CALL}]}, finish="tool_calls")
    tab.ask("Is it cold in Oslo?")
    tab.page.get_by_label("Result of weather").fill('{"temperature": -5}')
    tab.page.screenshot(path=folder / "page-tools-dark.png")
    tab.page.unroute(CHATS)


def panels(tab: Tab, folder: Path) -> None:
    """The other views, with what the server really says."""
    tab.page.unroute(CHATS)
    tab.show("Playground")
    tab.page.get_by_role("button", name="Generate").click()
    expect(tab.page.get_by_text("✓")).to_be_visible()
    tab.page.screenshot(path=folder / "page-playground.png")
    tab.show("Server")
    for _ in range(4):
        body = {"prompt": "Once upon a time", "max_tokens": 200, "min_tokens": 200}
        post(tab.url, "/v1/completions", body)
        tab.page.wait_for_timeout(1_500)
    tab.page.wait_for_timeout(2_500)
    tab.page.screenshot(path=folder / "page-server.png")
    tab.show("Models")
    expect(tab.page.locator(".card").first).to_be_visible()
    tab.page.screenshot(path=folder / "page-models.png")


def take(browser: Browser, url: str, folder: Path) -> None:
    """All of them."""
    with opened_tab(browser, url, viewport=_WIDE) as tab:
        chat(tab, folder, "page-chat.png")
        panels(tab, folder)
    with opened_tab(browser, url, viewport=_WIDE, color_scheme="dark") as tab:
        tools(tab, folder)
    with opened_tab(browser, url, viewport=_SMALL) as tab:
        chat(tab, folder, "page-small.png")


if __name__ == "__main__":
    with sync_playwright() as playwright:
        take(chromium(playwright), sys.argv[1], Path(sys.argv[2]))
