"""Chats that the server keeps: seen from every browser, and never lost between two of them."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Route, expect

from tests.page.fixtures import START_S
from tests.page.support import Tab, opened_tab
from tests.page.test_accessibility import AXE, violations
from tests.support.clients.raw_http import get
from tests.support.servers.served import serving


def node(parent: str | None, role: str, text: str) -> dict[str, Any]:
    content = {"content_type": "text", "parts": [text]}
    return {"message": {"author": {"role": role}, "content": content}, "parent": parent}


CHATGPT = {
    "title": "From elsewhere",
    "update_time": 1_700_000_000.0,
    "conversation_id": "x",
    "current_node": "a2",
    "mapping": {
        "q": node(None, "user", "Cold?"),
        "a1": node("q", "assistant", "No."),
        "a2": node("q", "assistant", "Yes."),
    },
}


@pytest.fixture
def url(built_page: None, tmp_path: Path) -> Generator[str]:
    with serving(tmp_path, "--port", "0", "--threads", "1") as server:
        yield server.url(START_S)


def listed(tab: Tab) -> Locator:
    return tab.page.locator(".open-chat")


def asked(tab: Tab, question: str, answer: str) -> None:
    """Ask, and wait until the server has the answer."""
    tab.page.unroute_all()
    tab.answer_chats_with({"content": answer})
    with tab.page.expect_response(
        lambda response: (
            response.request.method == "PUT"
            and response.ok
            and answer in (response.request.post_data or "")
            and '"finish":"stop"' in (response.request.post_data or "")
        )
    ):
        tab.ask(question)
    tab.wait_for_answer()


def stored(url: str) -> list[dict[str, Any]]:
    return json.loads(get(url, "/extras/chats/export").body)["chats"]


def test_another_browser_has_the_same_list(tab: Tab, browser: Browser, url: str) -> None:
    for number in range(4):
        asked(tab, f"question {number}", f"the {['first', 'second', 'third', 'fourth'][number]} answer")
        tab.page.keyboard.press("Alt+n")
    with opened_tab(browser, url) as other:
        expect(listed(other)).to_have_text([f"question {number}" for number in (3, 2, 1, 0)])
        other.page.get_by_label("Search chats").fill("secon")
        expect(listed(other)).to_have_count(1)
        expect(listed(other)).to_contain_text("the second answer")
        listed(other).click()
        expect(other.answers.get_by_text("the second answer")).to_be_visible()
        other.page.get_by_label("Search chats").fill("")
        other.page.get_by_role("button", name="Pin question 0").click()
        other.page.get_by_role("button", name="Rename question 1").click()
        other.page.get_by_label("Title").fill("renamed")
        other.page.get_by_label("Folder").fill("Work")
        other.page.get_by_label("Folder").press("Enter")
        order = ["question 0", "renamed", "question 3", "question 2"]
        expect(listed(other)).to_have_text(order)
        other.page.get_by_role("button", name="Delete question 3").click()
        expect(listed(other)).to_have_text([title for title in order if title != "question 3"])
        other.page.get_by_role("button", name="Undo").click()
        expect(listed(other)).to_have_text(order)
        with other.page.expect_response(lambda response: response.request.method == "DELETE"):
            other.page.get_by_role("button", name="Delete question 2").click()
    tab.page.reload()
    expect(listed(tab)).to_have_text(["question 0", "renamed", "question 3"])
    expect(tab.page.locator("summary", has_text="Work")).to_be_visible()


def test_nothing_in_the_list_is_wrong_for_people_who_read_otherwise(browser: Browser, url: str) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed (npm ci in web/)")
    with opened_tab(browser, url, bypass_csp=True) as tab:
        for number in range(4):
            tab.page.keyboard.press("Alt+n")
            asked(tab, f"question {number}", f"answer {number}")
        tab.page.add_script_tag(path=AXE)
        tab.page.get_by_role("button", name="Pin question 0").click()
        tab.page.get_by_role("button", name="Rename question 1").click()
        assert violations(tab) == []
        tab.page.get_by_label("Folder").fill("Work")
        tab.page.get_by_label("Folder").press("Enter")
        expect(tab.page.locator("summary", has_text="Work")).to_be_visible()
        assert violations(tab) == []
        tab.page.get_by_label("Search chats").fill("answer")
        expect(listed(tab).get_by_text("answer 1")).to_be_visible()
        assert violations(tab) == []


def test_two_pages_that_go_on_with_one_chat_lose_nothing(tab: Tab, browser: Browser, url: str) -> None:
    asked(tab, "one", "first")
    with opened_tab(browser, url) as other:
        other.expected.append("409")
        listed(other).click()
        expect(other.answers).to_have_count(1)
        asked(tab, "from here", "so it is")
        tab.page.get_by_role("button", name="Settings of this chat").click()
        with tab.page.expect_response(lambda response: response.request.method == "PUT" and response.ok):
            tab.page.get_by_label("Instructions").fill("Be brief.")
        asked(other, "from there", "there it is")
        expect(other.page.get_by_label("Versions").get_by_text("/2")).to_be_visible()
    tab.page.reload()
    listed(tab).click()
    # Until then the page shows what it had itself.
    expect(tab.page.get_by_label("Versions")).to_be_visible()
    texts = ["so it is", "there it is"]
    if texts[0] not in (tab.answers.last.text_content() or ""):
        texts.reverse()
    expect(tab.answers.last).to_contain_text(texts[0])
    tab.page.get_by_label("Versions").locator("button:enabled").click()
    expect(tab.answers.last).to_contain_text(texts[1])
    (chat,) = stored(url)
    assert chat["settings"]["system"] == "Be brief."


def test_what_another_page_deleted_comes_back_when_something_is_asked_in_it(
    tab: Tab, browser: Browser, url: str
) -> None:
    asked(tab, "one", "first")
    with (
        opened_tab(browser, url) as other,
        other.page.expect_response(lambda response: response.request.method == "DELETE"),
    ):
        other.page.get_by_role("button", name="Delete one").click()
    assert stored(url) == []
    tab.expected.append("409")
    asked(tab, "two", "second")
    assert [message["text"] for message in stored(url)[0]["messages"]] == ["one", "first", "two", "second"]


def test_what_the_server_does_not_take_stays_here_until_it_does(tab: Tab, url: str) -> None:
    def full(route: Route) -> None:
        error = {"error": {"message": "The chat store is full.", "code": "insufficient_storage"}}
        if route.request.method == "PUT":
            route.fulfill(status=507, json=error)
        else:
            route.fallback()

    tab.expected.append("507")
    tab.answer_chats_with({"content": "an answer"})
    tab.page.route("**/extras/chats/**", full)
    tab.ask("kept here")
    expect(tab.page.get_by_text("The chat store is full")).to_be_visible()
    tab.wait_for_answer()
    assert stored(url) == []
    # The answer's end is written before the page goes.
    tab.page.wait_for_function(
        """() => new Promise((done) => {
            indexedDB.open("jan-serve").onsuccess = ({ target }) => {
                target.result.transaction("conversations").objectStore("conversations").getAll().onsuccess =
                    ({ target: { result } }) => done(result.some(({ messages }) => messages[1]?.finish === "stop"));
            };
        })"""
    )
    tab.page.unroute_all()
    with tab.page.expect_response(lambda response: response.request.method == "PUT" and response.ok):
        tab.page.reload()
    assert [message["text"] for message in stored(url)[0]["messages"]] == ["kept here", "an answer"]
    listed(tab).click()
    expect(tab.answers.get_by_text("an answer")).to_be_visible()
    expect(tab.page.get_by_text("The chat store is full")).to_have_count(0)


@pytest.mark.parametrize("kept_by", ["the server", "the browser"])
def test_chats_come_from_files_and_go_into_one(
    browser: Browser, built_page: None, tmp_path: Path, kept_by: str
) -> None:
    flags = () if kept_by == "the server" else ("--chat-bytes", "0")
    with (
        serving(tmp_path, "--port", "0", "--threads", "1", *flags) as server,
        opened_tab(browser, server.url(START_S)) as tab,
    ):
        transfers_chats(tab, tmp_path)
        tab.page.reload()
        expect(listed(tab)).to_have_text(["From elsewhere"])


def transfers_chats(tab: Tab, tmp_path: Path) -> None:
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([CHATGPT]))
    field = tab.page.get_by_label("File of chats")
    field.set_input_files(file)
    expect(tab.page.get_by_text("1 chat is imported")).to_be_visible()
    expect(listed(tab)).to_have_text(["From elsewhere"])
    listed(tab).click()
    expect(tab.answers).to_contain_text("Yes.")
    tab.page.get_by_role("button", name="Earlier version").click()
    expect(tab.answers).to_contain_text("No.")
    with tab.page.expect_download() as download:
        tab.page.get_by_role("button", name="Export all").click()
    exported = download.value.path().read_text("utf-8")
    assert [chat["title"] for chat in json.loads(exported)["chats"]] == ["From elsewhere"]
    file.write_text(exported)
    field.set_input_files(file)
    expect(tab.page.get_by_text("0 chats are imported, 1 were here already")).to_be_visible()
    tab.expected.append("400")
    for text, words in (("{", "not JSON"), ('{"a": 1}', "no chat of jan-serve")):
        file.write_text(text)
        field.set_input_files(file)
        expect(tab.page.get_by_text(words)).to_be_visible()


def test_a_list_that_comes_late_keeps_the_chat_that_is_open(tab: Tab, url: str) -> None:
    """It is asked for before a question, and comes after the answer was written."""
    asked(tab, "before", "first")
    tab.page.get_by_role("button", name="New chat").click()
    held: list[Route] = []
    tab.page.route("**/extras/chats?*", lambda route: held.append(route))
    file = {"name": "chats.json", "mimeType": "application/json", "buffer": json.dumps([CHATGPT]).encode()}
    tab.page.get_by_label("File of chats").set_input_files(file)  # pyright: ignore[reportArgumentType]
    while len(held) < 2:
        tab.page.wait_for_timeout(50)
    tab.ask("meanwhile")
    tab.wait_for_answer()
    while not any(len(chat["messages"]) == 2 for chat in stored(url) if chat["title"] == "meanwhile"):
        tab.page.wait_for_timeout(50)
    for route in held:
        with tab.page.expect_response("**/extras/chats?*"):
            route.continue_()
    expect(listed(tab)).to_have_text(["meanwhile", "before", "From elsewhere"])
    expect(tab.answers.get_by_text("first")).to_be_visible()
    expect(tab.page.get_by_text("Loading…")).to_have_count(0)
