"""axe finds no accessibility problems in any view: labels, contrast, roles, headings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ViewportSize, expect

from tests.page.fixtures import START_S
from tests.page.support import CHATS, Tab, opened_tab
from tests.support.servers.fake_hub import FakeHub
from tests.support.servers.served import serving

AXE = Path(__file__).resolve().parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
WIDE: ViewportSize = {"width": 1200, "height": 760}
SMALL: ViewportSize = {"width": 390, "height": 760}
CALL = {"name": "weather", "arguments": '{"city": "Oslo"}'}
HEADINGS = "#### Deep\n\n# High\n\n### Lower\n\n"
ANSWER = f"{HEADINGS}**Bold**, `code`\n\n```python\ndef f(): return [1]  # x\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"


def violations(tab: Tab) -> list[tuple[str, Any]]:
    """The problems and their places, once nothing moves any more."""
    # A menu in its closing animation is neither visible nor hidden.
    found: list[dict[str, Any]] = tab.page.evaluate(
        "Promise.allSettled(document.getAnimations().map(({ finished }) => finished))"
        ".then(() => axe.run()).then(({ violations }) => violations)"
    )
    return [(each["id"], [node["target"] for node in each["nodes"]]) for each in found]


OPEN_ALL = "document.querySelectorAll('main [aria-expanded=false]').forEach((button) => button.click())"
LOOKS = pytest.mark.parametrize(
    ("scheme", "size"), [("light", WIDE), ("dark", SMALL)], ids=["light, wide", "dark, small"]
)


@LOOKS
def test_nothing_is_wrong_for_people_who_read_otherwise(
    browser: Browser, url: str, scheme: Any, size: ViewportSize
) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed (npm ci in web/)")
    # Only so that the checker can be injected into the page.
    with opened_tab(browser, url, color_scheme=scheme, viewport=size, bypass_csp=True) as tab:
        tab.page.add_script_tag(path=AXE)
        expect(tab.page.get_by_role("heading", name="What would you like to know?")).to_be_visible()
        assert violations(tab) == []
        tab.answer_chats_with({"reasoning_content": "Hm."}, {"content": ANSWER})
        tab.ask("How?")
        tab.wait_for_answer()
        assert violations(tab) == []
        tab.page.unroute(CHATS)
        call = {"index": 0, "id": "1", "function": CALL}
        tab.answer_chats_with({"tool_calls": [call]}, finish="tool_calls")
        tab.ask("Is it cold?")
        expect(tab.page.get_by_label("Result of weather")).to_be_visible()
        assert violations(tab) == []
        shown = {
            "Models": tab.page.get_by_role("listitem", name="second", exact=True),
            "Playground": tab.page.get_by_text("root ::="),
            "Batches": tab.page.get_by_role("button", name="Choose a file"),
            "Server": tab.page.get_by_role("option", name="Open WebUI", include_hidden=True),
        }
        for view, last in shown.items():
            if size is SMALL:
                tab.page.get_by_role("button", name="Menu").click()
                assert violations(tab) == []
            tab.show(view)
            expect(last).to_have_count(1)
            assert violations(tab) == []
            tab.page.evaluate(OPEN_ALL)
            assert violations(tab) == []
        tab.page.keyboard.press("?")
        expect(tab.page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
        assert violations(tab) == []


@LOOKS
def test_nothing_is_wrong_on_the_first_visit(
    browser: Browser, built_page: None, tmp_path: Path, hub: FakeHub, scheme: Any, size: ViewportSize
) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed (npm ci in web/)")
    config = f'data_dir = "data"\nmodels_dir = "models"\nhf_endpoint = "{hub.url}"\n'
    (tmp_path / "config.toml").write_text(config, encoding="utf-8")
    flags = ("--port", "0", "--threads", "1")
    with (
        serving(tmp_path, *flags) as server,
        opened_tab(browser, server.url(START_S), color_scheme=scheme, viewport=size, bypass_csp=True) as tab,
    ):
        tab.page.add_script_tag(path=AXE)
        expect(tab.page.get_by_role("list", name="Models to get").get_by_role("listitem")).to_have_count(3)
        assert violations(tab) == []
        tab.page.get_by_role("button", name="Settings of this chat").click()
        assert violations(tab) == []
        for view in ("Models", "Playground", "Batches", "Server"):
            if size is SMALL:
                tab.page.get_by_role("button", name="Menu").click()
            tab.show(view)
            expect(tab.page.get_by_role("heading", level=1)).to_be_visible()
            assert violations(tab) == [], view


def test_nothing_is_wrong_where_a_key_is_asked_for(browser: Browser, keyed_url: str) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed (npm ci in web/)")
    with opened_tab(browser, keyed_url, bypass_csp=True) as tab:
        tab.expected.append("401")
        tab.page.add_script_tag(path=AXE)
        expect(tab.page.get_by_role("dialog")).to_be_visible()
        assert violations(tab) == []
