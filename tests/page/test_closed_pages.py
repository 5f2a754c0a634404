"""An answer goes on while its page is closed, and is there afterwards."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Error, Route, expect

from tests.page.fixtures import START_S
from tests.page.support import CHATS, Tab, opened_tab
from tests.support.clients.raw_http import get
from tests.support.processes import workers_of
from tests.support.servers.served import Served, serving

FLAGS = ("--threads", "1", "--n-ctx", "16384", "--model", "jan-tiny")
TOKENS = 600
LONG_MS = 120_000
"""How long so many tokens may take on a busy machine."""


@pytest.fixture
def server(built_page: None, tmp_path: Path) -> Generator[Served]:
    with serving(tmp_path, "--port", "0", *FLAGS) as server:
        yield server


@pytest.fixture
def url(server: Served) -> str:
    return server.url(START_S)


@contextmanager
def suspended(server: Served) -> Generator[None]:
    """No token comes meanwhile."""
    workers = workers_of(server.process.pid)
    assert workers
    for worker in workers:
        worker.suspend()
    try:
        yield
    finally:
        for worker in workers:
            worker.resume()


def begun(tab: Tab, tokens: int = 15_000) -> str:
    """Ask for so many tokens; the id of the response, once the chat on the server names it."""
    length = {"min_tokens": tokens, "max_output_tokens": tokens, "temperature": 0}

    def changed(route: Route) -> None:
        route.continue_(post_data=json.dumps({**json.loads(route.request.post_data or ""), **length}))

    tab.page.route(CHATS, changed)
    with tab.page.expect_response(
        lambda reply: reply.request.method == "PUT" and '"response"' in (reply.request.post_data or "")
    ) as put:
        tab.ask("Tell me everything.")
    (answer,) = json.loads(put.value.request.post_data or "")["messages"][1:]
    return answer["response"]


def stored(url: str) -> dict[str, Any]:
    (chat,) = json.loads(get(url, "/extras/chats/export").body)["chats"]
    return chat


def ended(url: str, response: str) -> str:
    """The whole text of the response. Waits for its end, which its stream has."""
    get(url, f"/v1/responses/{response}?stream=true")
    body = json.loads(get(url, f"/v1/responses/{response}").body)
    return body["output"][0]["content"][0]["text"]


def open_chat(tab: Tab) -> None:
    tab.page.locator(".open-chat", has_text="Tell me everything.").click()


@pytest.mark.parametrize("how", ["closed", "crashed"])
def test_the_answer_of_a_page_that_is_gone_is_there_afterwards(
    browser: Browser, server: Served, url: str, how: str
) -> None:
    with opened_tab(browser, url) as tab, suspended(server):
        response = begun(tab, TOKENS)
        if how == "closed":
            tab.page.close()
        else:
            with tab.page.expect_event("crash"), pytest.raises(Error):
                tab.page.goto("chrome://crash")
        assert get(url, f"/v1/responses/{response}").json()["status"] == "queued"
    whole = ended(url, response)
    with opened_tab(browser, url) as other:
        open_chat(other)
        expect(other.answers).to_have_count(1)
        expect(other.page.get_by_text("The answer reached its limit of tokens.")).to_be_visible()
        expect(other.page.get_by_text(f"{TOKENS} tokens")).to_be_visible()
    assert [message["text"] for message in stored(url)["messages"]] == ["Tell me everything.", whole]
    assert get(url, f"/v1/responses/{response}").status == 404


def test_a_second_browser_sees_the_answer_grow_and_one_copy_stays(
    tab: Tab, browser: Browser, url: str
) -> None:
    response = begun(tab)
    with opened_tab(browser, url) as other:
        for each in (tab, other):
            each.expected += ["409", "404"]
        open_chat(other)
        expect(other.page.get_by_role("button", name="Stop")).to_be_visible()
        before = len(other.answers.first.text_content() or "")
        other.page.wait_for_function(
            "least => document.querySelector('.message.assistant').textContent.length > least", arg=before
        )
        other.page.get_by_role("button", name="Stop").click()
        for each in (tab, other):
            expect(each.page.get_by_text("Stopped.")).to_be_visible()
            expect(each.page.get_by_role("button", name="Send")).to_be_visible()
        expect(other.answers).to_have_count(1)
    with opened_tab(browser, url) as third:
        open_chat(third)
        expect(third.answers).to_have_count(1)
        expect(third.page.get_by_text("Stopped.")).to_be_visible()
    answers = [message for message in stored(url)["messages"] if message["role"] == "assistant"]
    assert len(answers) == 1 and "versions" not in answers[0] and "response" not in answers[0]
    assert get(url, f"/v1/responses/{response}").status == 404


def test_a_stopped_answer_runs_no_longer_on_the_server(tab: Tab, url: str) -> None:
    response = begun(tab)
    with tab.page.expect_response(lambda reply: reply.url.endswith("/cancel")):
        tab.page.get_by_role("button", name="Stop").click()
    expect(tab.page.get_by_text("Stopped.")).to_be_visible()
    reply = get(url, f"/v1/responses/{response}")
    assert reply.status == 404 or json.loads(reply.body)["status"] == "cancelled"


def test_a_deleted_chat_ends_its_answer_in_every_page(tab: Tab, browser: Browser, url: str) -> None:
    response = begun(tab)
    tab.expected += ["404", "409"]
    with opened_tab(browser, url) as other:
        with other.page.expect_response(lambda reply: reply.request.method == "DELETE"):
            other.page.get_by_role("button", name="Delete Tell me everything.").click()
        expect(tab.page.locator(".open-chat")).to_have_count(0)
        assert json.loads(get(url, "/extras/chats").body)["data"] == []
        assert get(url, f"/v1/responses/{response}").status == 404
        other.page.get_by_role("button", name="Undo").click()
        expect(other.page.get_by_text("Stopped.")).to_be_visible()


def test_an_answer_goes_on_over_the_end_of_its_server(
    browser: Browser, server: Served, url: str, tmp_path: Path
) -> None:
    with opened_tab(browser, url) as tab:
        tab.expected += ["ERR_", "503", "409", "404"]
        begun(tab, TOKENS)
        expect(tab.answers.locator(".markdown")).not_to_be_empty()
        server.process.kill()
        server.wait()
        with serving(tmp_path, "--port", str(urlsplit(url).port), *FLAGS) as again:
            assert again.url(START_S) == url
            # The page takes it up by itself, or when its chat is opened again.
            ends = tab.page.get_by_text("The answer reached its limit of tokens.")
            broken = tab.answers.get_by_role("alert")
            expect(ends.or_(broken)).to_be_visible(timeout=LONG_MS)
            if broken.count():
                open_chat(tab)
            expect(ends).to_be_visible(timeout=LONG_MS)
            expect(broken).to_have_count(0)
            expect(tab.answers).to_have_count(1)
            (answer,) = stored(url)["messages"][1:]
            assert (answer["finish"], answer["timings"]["predicted_n"]) == ("length", TOKENS)


def test_without_room_for_the_journal_answers_come_as_long_as_the_page_is_open(
    browser: Browser, built_page: None, tmp_path: Path
) -> None:
    with (
        serving(tmp_path, "--port", "0", "--journal-bytes", "0", *FLAGS) as server,
        opened_tab(browser, server.url(START_S)) as tab,
    ):
        tab.expected.append("400")
        tab.ask("What is jan-serve?")
        tab.wait_for_answer()
        expect(tab.answers.get_by_role("alert")).to_have_count(0)
        expect(tab.answers.locator(".markdown")).not_to_be_empty()
