"""Takes the pictures of the documents: `python -m tests.page.screenshots URL FOLDER`. Look at them before a commit.

The server has only the built-in model, and every answer is the model's own.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, expect, sync_playwright

from tests.page.support import Tab, chromium, opened_tab
from tests.page.test_batches import line, send
from tests.support.clients.raw_http import post

QUESTIONS: Final = (
    "Think step by step: what is 7 plus 8?",
    "What is jan-serve?",
    "How do I get a larger model?",
)
TOOLS: Final[list[dict[str, Any]]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Get the current weather for a city",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]
WIDE: Final = {"width": 1200, "height": 760}
SMALL: Final = {"width": 390, "height": 760}


def chat(tab: Tab, path: Path) -> None:
    """A thought and three answers."""
    set_greedy(tab)
    for question in QUESTIONS:
        tab.ask(question)
        tab.wait_for_answer()
    tab.page.locator("summary", has_text="Thoughts").first.click()
    tab.page.locator(".messages").evaluate("box => box.scrollTop = 0")
    tab.page.screenshot(path=path)


def tool_call(tab: Tab, path: Path) -> None:
    """A call, its result, the answer, and a second call that waits for its result."""
    set_greedy(tab, tools=json.dumps(TOOLS))
    tab.ask("What is the weather in Oslo?")
    tab.page.get_by_label("Result of get_weather").fill('{"condition": "snowy", "degrees": -5}')
    tab.page.get_by_role("button", name="Give result").click()
    tab.wait_for_answer()
    tab.ask("How warm is it in Rome?")
    tab.page.get_by_label("Result of get_weather").fill('{"condition": "sunny", "degrees": 24}')
    tab.page.screenshot(path=path)


def panels(tab: Tab, folder: Path) -> None:
    """The playground, the server, the models and the batches."""
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
    explained(tab, folder / "page-why.png")
    tab.show("Models")
    expect(tab.page.get_by_role("list", name="Models to get").get_by_role("listitem").first).to_be_visible()
    tab.page.screenshot(path=folder / "page-models.png")
    card = send(tab, "questions.jsonl", *(line(str(number), model="jan-tiny") for number in range(12)))
    expect(card.locator(".state")).to_have_text("done")
    send(
        tab,
        "night.jsonl",
        *(line(str(number), model="jan-tiny", min_tokens=900, max_tokens=900) for number in range(200)),
    )
    expect(tab.page.get_by_text(re.compile("[1-9] of 200 answered"))).to_be_visible()
    tab.page.screenshot(path=folder / "page-batches.png")


def explained(tab: Tab, path: Path) -> None:
    """The causes of a request whose client has put another date before its system text."""
    for day in (27, 28):
        system = f"Today is 2026-11-{day}.\n" + "You are a careful assistant of a library. " * 100
        messages = [{"role": "system", "content": system}, {"role": "user", "content": QUESTIONS[1]}]
        body = {"messages": messages, "max_tokens": 60}
        post(tab.url, "/v1/chat/completions", body, headers={"user-agent": "codex/0.169"})
    tab.show("Server")
    why = tab.page.get_by_role("button", name=re.compile("^Why: ")).first
    expect(tab.page.get_by_role("row").nth(1)).to_contain_text("codex")
    why.click()
    expect(tab.page.get_by_role("region", name=re.compile("^Request "))).to_contain_text("another date")
    tab.page.mouse.wheel(0, 400)
    tab.page.screenshot(path=path)


def set_greedy(tab: Tab, tools: str = "") -> None:
    """Set the chat's settings: temperature 0, so that the answers are the same each time."""
    settings = tab.page.get_by_role("button", name="Settings of this chat")
    settings.click()
    tab.page.get_by_label("Temperature").fill("0")
    tab.page.get_by_label("Tools (a JSON list").fill(tools)
    settings.click()


def take(browser: Browser, url: str, folder: Path) -> None:
    """Take all pictures."""
    with opened_tab(browser, url, viewport=WIDE) as tab:
        expect(tab.page.get_by_role("list", name="Models to get").get_by_role("listitem")).to_have_count(3)
        tab.page.screenshot(path=folder / "page-first-visit.png")
        chat(tab, folder / "page-chat.png")
        panels(tab, folder)
    with opened_tab(browser, url, viewport=WIDE, color_scheme="dark") as tab:
        tool_call(tab, folder / "page-tools-dark.png")
    with opened_tab(browser, url, viewport=SMALL) as tab:
        chat(tab, folder / "page-small.png")


if __name__ == "__main__":
    with sync_playwright() as playwright:
        take(chromium(playwright), sys.argv[1], Path(sys.argv[2]))
