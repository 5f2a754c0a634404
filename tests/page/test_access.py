"""The key, the keyboard, small screens, colours, and a server that is gone."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from tests.page.support import KEY, Tab, opened_tab


def test_a_key_is_asked_for_once_and_forgotten_on_demand(browser: Browser, keyed_url: str) -> None:
    with opened_tab(browser, keyed_url) as tab:
        tab.expected.append("401")
        dialog = tab.page.get_by_role("dialog", name="This server asks for a key")
        dialog.get_by_label("API key").fill("wrong")
        dialog.get_by_label("API key").press("Enter")
        expect(dialog.get_by_role("alert")).to_contain_text("did not accept")
        dialog.get_by_label("API key").fill(KEY)
        dialog.get_by_role("button", name="Use this key").click()
        expect(dialog).to_have_count(0)
        tab.ask("Hello! Who are you?")
        tab.wait_for_answer()
        expect(tab.answers.get_by_role("alert")).to_have_count(0)
        tab.page.reload()
        expect(tab.page.get_by_label("Model", exact=True)).to_have_value("jan-tiny")
        assert tab.page.evaluate("localStorage.getItem('api-key')") is None
        tab.show("Server")
        tab.page.get_by_role("button", name="Forget the key").click()
        expect(dialog).to_be_visible()


def test_a_kept_key_outlives_the_tab(browser: Browser, keyed_url: str) -> None:
    with opened_tab(browser, keyed_url) as tab:
        tab.expected.append("401")
        tab.page.get_by_label("API key").fill(KEY)
        tab.page.get_by_label("Keep it in this browser").check()
        tab.page.get_by_role("button", name="Use this key").click()
        expect(tab.page.get_by_label("Model", exact=True)).to_have_value("jan-tiny")
        other = tab.page.context.new_page()
        other.goto(keyed_url)
        expect(other.get_by_label("Model", exact=True)).to_have_value("jan-tiny")


def test_everything_can_be_reached_by_keyboard(tab: Tab) -> None:
    page = tab.page
    expect(tab.question).to_be_focused()
    page.keyboard.press("Alt+2")
    expect(page.get_by_role("heading", name="Models", exact=True)).to_be_visible()
    page.keyboard.press("Alt+3")
    expect(page.get_by_role("heading", name="Constraint playground")).to_be_visible()
    page.keyboard.press("Alt+4")
    expect(page.get_by_role("heading", name="Batches")).to_be_visible()
    page.keyboard.press("Alt+5")
    expect(page.get_by_role("heading", name="Server")).to_be_visible()
    page.keyboard.press("?")
    help_ = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(help_).to_be_visible()
    page.keyboard.press("Escape")
    expect(help_).to_have_count(0)
    page.keyboard.press("Alt+1")
    page.keyboard.press("/")
    expect(tab.question).to_be_focused()
    tab.question.blur()
    page.reload()
    page.locator("body").press("Tab")
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, a, input:not([hidden]), select, textarea')].filter("
        "control => !(control.ariaLabel || control.textContent.trim() || control.labels?.length)).length"
    )
    assert unnamed == 0


def test_colours_are_chosen_and_kept(tab: Tab) -> None:
    root = tab.page.locator("html")
    light = tab.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    tab.page.get_by_role("button", name="Colours: system").click()
    tab.page.get_by_role("button", name="Colours: light").click()
    expect(root).to_have_attribute("data-theme", "dark")
    assert tab.page.evaluate("getComputedStyle(document.documentElement).backgroundColor") != light
    tab.page.reload()
    expect(root).to_have_attribute("data-theme", "dark")


_STICKING_OUT = """
[...document.querySelectorAll("body *")].filter((element) => {
  const box = element.getBoundingClientRect();
  return box.width > 1 && box.right > innerWidth + 1 && !element.parentElement.closest("pre, .table-box");
}).map((element) => element.outerHTML.slice(0, 80))
"""
"""Elements that a small screen cuts off, except those that scroll in their own box."""


def test_a_small_screen_has_a_menu_and_nothing_sticks_out(browser: Browser, url: str) -> None:
    with opened_tab(browser, url, viewport={"width": 360, "height": 640}) as tab:
        table = "| way | time | memory |\n|---|---|---|\n| " + "a word " * 9 + "| 1 | 2 |\n"
        code = "`" + "x" * 300 + "`\n\n```\n" + "y" * 300 + "\n```\n\n"
        tab.answer_chats_with({"content": "a " * 200 + code + table})
        tab.ask("hello")
        tab.wait_for_answer()
        heads = tab.answers.locator("th").all()
        assert len(heads) == 3
        for head in heads:
            lines = head.evaluate(
                "head => { const range = document.createRange(); range.selectNodeContents(head);"
                " return range.getClientRects().length; }"
            )
            assert lines == 1, "words of tables stay whole"
        assert tab.page.evaluate(_STICKING_OUT) == []
        shown = {
            "Models": tab.page.get_by_role("listitem", name="second", exact=True),
            "Playground": tab.page.get_by_text("root ::="),
            "Server": tab.page.get_by_role("option", name="Open WebUI", include_hidden=True),
            "Chat": tab.question,
        }
        for view, last in shown.items():
            expect(tab.page.get_by_role("link", name=view)).to_be_hidden()
            tab.page.get_by_role("button", name="Menu").click()
            tab.show(view)
            expect(tab.page.get_by_role("link", name=view)).to_be_hidden()
            expect(last).to_have_count(1)
            assert tab.page.evaluate(_STICKING_OUT) == []


def test_without_its_server_the_page_shows_an_error(tab: Tab) -> None:
    tab.expected.append("ERR_")
    expect(tab.page.get_by_label("Model", exact=True)).to_have_value("first")
    tab.page.context.set_offline(True)
    tab.ask("hello")
    expect(tab.answers.get_by_role("alert")).to_contain_text("cannot be reached")
    tab.page.context.set_offline(False)
    tab.answer_chats_with({"content": "there"})
    tab.page.get_by_role("button", name="Regenerate").click()
    expect(tab.answers.get_by_text("there", exact=True)).to_be_visible()
