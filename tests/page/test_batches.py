"""Batches in the page: sent, watched, opened, downloaded, cancelled; names and results are text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.page.support import Tab
from tests.support.clients.raw_http import post

HOSTILE = "<img src=a onerror=alert(1)>"


def line(custom_id: str, url: str = "/v1/chat/completions", **body: Any) -> str:
    messages = [{"role": "user", "content": "Hello!"}]
    asked = {"model": "first", "messages": messages, "max_tokens": 4, **body}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": asked})


def send(tab: Tab, name: str, *lines: str) -> Locator:
    """Send a file; its card."""
    tab.show("Batches")
    content = "".join(f"{each}\n" for each in lines).encode()
    field = tab.page.get_by_label("File of requests")
    field.set_input_files({"name": name, "mimeType": "application/jsonl", "buffer": content})
    return tab.page.get_by_role("listitem", name=name, exact=True)


def downloaded(tab: Tab, card: Locator, button: str) -> tuple[str, list[dict[str, Any]]]:
    with tab.page.expect_download() as download:
        card.get_by_role("button", name=button).click()
    text = download.value.path().read_text(encoding="utf-8")
    return download.value.suggested_filename, [json.loads(row) for row in text.splitlines()]


def test_a_file_is_answered_and_its_answers_and_errors_are_downloaded(tab: Tab) -> None:
    card = send(tab, "mixed.jsonl", line("good"), line(HOSTILE, temperature="hot"), line("fine"))
    expect(card.locator(".state")).to_have_text("done")
    expect(card.locator(".facts")).to_contain_text("2 of 3 answered · 1 failed")
    expect(card.get_by_role("progressbar")).to_have_attribute("value", "3")
    card.get_by_role("button", name="Details").click()
    expect(card.get_by_role("list", name="Errors of mixed.jsonl").get_by_role("listitem")).to_contain_text(
        [f"{HOSTILE}: "]
    )
    expect(tab.page.locator("main img")).to_have_count(0)
    name, answers = downloaded(tab, card, "Download answers")
    assert name == "mixed.answers.jsonl"
    assert [row["custom_id"] for row in answers] == ["good", "fine"]
    name, errors = downloaded(tab, card, "Download errors")
    assert name == "mixed.errors.jsonl"
    assert [row["custom_id"] for row in errors] == [HOSTILE]


def test_the_name_of_a_file_is_text(tab: Tab) -> None:
    expect(send(tab, f"{HOSTILE}.jsonl", line("one")).locator(".state")).to_have_text("done")
    expect(tab.page.locator("main img")).to_have_count(0)


def test_an_input_that_is_no_batch_names_its_lines(tab: Tab) -> None:
    card = send(tab, "broken.jsonl", line("same"), line("same"), "no JSON")
    expect(card.locator(".state")).to_have_text("failed")
    card.get_by_role("button", name="Details").click()
    faults = card.get_by_role("list", name="Errors of broken.jsonl").get_by_role("listitem")
    expect(faults).to_have_count(2)
    expect(faults.first).to_contain_text("Line 2: ")
    expect(faults.last).to_contain_text("Line 3: ")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((), "is empty"),
        (("hello",), "the first line is not JSON"),
        (("null",), "url in the first line must be one of /v1/chat/completions"),
        ((line("one", url="/v1/rerank"),), "url in the first line must be one of /v1/chat/completions"),
    ],
    ids=["empty", "no JSON", "null", "other endpoint"],
)
def test_a_file_that_cannot_be_a_batch_is_not_sent(tab: Tab, lines: tuple[str, ...], words: str) -> None:
    uploads: list[str] = []
    tab.page.on("request", lambda request: uploads.append(request.url) if request.method == "POST" else None)
    card = send(tab, "refused.jsonl", *lines)
    expect(tab.page.get_by_role("alert")).to_contain_text(words)
    expect(card).to_have_count(0)
    assert uploads == []


def test_a_batch_is_cancelled(tab: Tab) -> None:
    endless = [line(str(number), min_tokens=1_500, max_tokens=1_500) for number in range(200)]
    card = send(tab, "long.jsonl", *endless)
    expect(card.locator(".state")).to_have_text("running")
    card.get_by_role("button", name="Cancel").click()
    expect(card.locator(".state")).to_have_text("cancelled")
    expect(card.get_by_role("button", name="Cancel")).to_have_count(0)


def test_message_batches_are_listed_too(tab: Tab) -> None:
    params = {"model": "first", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]}
    reply = post(tab.url, "/v1/messages/batches", {"requests": [{"custom_id": "one", "params": params}]})
    tab.show("Batches")
    card = tab.page.get_by_role("listitem", name=json.loads(reply.body)["id"], exact=True)
    expect(card.locator(".state")).to_have_text("done")
    assert [row["custom_id"] for row in downloaded(tab, card, "Download answers")[1]] == ["one"]


def test_without_batches_the_view_says_what_it_is_for_and_has_an_example(tab: Tab) -> None:
    tab.page.route("**/batches?*", lambda route: route.fulfill(json={"data": []}))
    tab.show("Batches")
    expect(tab.page.get_by_text("requests that can wait")).to_be_visible()
    expect(tab.page.get_by_text("There are no batches yet.")).to_be_visible()
    with tab.page.expect_download() as download:
        tab.page.get_by_role("button", name="Download an example").click()
    example = download.value.path().read_text(encoding="utf-8").splitlines()
    tab.page.unroute_all()
    expect(send(tab, "example.jsonl", *example).locator(".state")).to_have_text("done")
