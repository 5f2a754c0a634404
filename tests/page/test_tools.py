"""Tools of a real MCP server, PDFs and counts of tokens in the page. Where a model would call, answers are scripted."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Route, expect

from tests.page.support import CHATS, Tab, stream_of
from tests.support.media.pdfs import encrypted, pdf
from tests.support.servers.mcp_server import LIES, entry


@pytest.fixture
def told(folder: Path, tmp_path: Path) -> Generator[Path]:
    """Names MCP servers, two of them broken. The file that one writes when a call is cancelled."""
    told = tmp_path / "told"
    file = folder / "data" / "mcp.json"
    servers = {"test": entry(TOLD=str(told)), "lies": entry("lies"), "gone": {"command": "no-such-program"}}
    file.write_text(json.dumps({"mcpServers": servers}))
    yield told
    file.unlink()


def call(name: str, text: str = "{}") -> dict[str, Any]:
    called = {"index": 0, "id": "c1", "type": "function", "function": {"name": name, "arguments": text}}
    return {"tool_calls": [called]}


def asked(tab: Tab, name: str, text: str = "{}") -> list[dict[str, Any]]:
    """The next question makes the model call; the list receives the requests."""
    tab.page.unroute(CHATS)
    requests = tab.answer_chats_with(call(name, text), finish="tool_calls")
    tab.ask("Please call it.")
    return requests


def answers(tab: Tab) -> list[dict[str, Any]]:
    tab.page.unroute(CHATS)
    return tab.answer_chats_with({"content": "Done."})


def test_each_call_is_asked_for_and_its_result_goes_to_the_model(told: Path, tab: Tab) -> None:
    page = tab.page
    page.get_by_role("button", name="Settings of this chat").click()
    page.get_by_label("Let the model use MCP servers").check()
    expect(page.get_by_text("gone failed: there is no program no-such-program")).to_be_visible()
    expect(page.get_by_text("is left out: it")).to_have_count(len(LIES))
    first = asked(tab, "test__add", '{"a": 2, "b": 3}')
    expect(page.get_by_text("Call test__add?")).to_be_visible()
    assert "test__add" in [tool["function"]["name"] for tool in first[0]["tools"]]
    second = answers(tab)
    page.get_by_role("button", name="Always in this chat").click()
    expect(tab.answers.get_by_text("Done.", exact=True)).to_be_visible()
    assert second[0]["messages"][-1] == {"role": "tool", "content": "5", "tool_call_id": "c1"}

    asked(tab, "test__picture")
    expect(page.get_by_text("Call test__picture?")).to_be_visible()
    third = answers(tab)
    page.get_by_role("button", name="Allow").click()
    expect(page.get_by_role("article", name="Result of a tool").get_by_role("img")).to_be_visible()
    expect(tab.answers.get_by_text("Done.", exact=True)).to_have_count(2)
    assert third[0]["messages"][-1]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")

    asked(tab, "test__fail")
    fourth = answers(tab)
    page.get_by_role("button", name="Refuse").click()
    expect(tab.answers.get_by_text("Done.", exact=True)).to_have_count(3)
    assert fourth[0]["messages"][-1]["content"] == "The user did not allow this call."

    asked(tab, "test__wait")
    page.get_by_role("button", name="Allow").click()
    expect(page.get_by_text("Calling test__wait…")).to_be_visible()
    _until(tab, told.with_name("told-begun"))
    page.get_by_role("button", name="Stop the call").click()
    expect(page.get_by_text("Call test__wait?")).to_be_visible()
    _until(tab, told)


def _until(tab: Tab, file: Path) -> None:
    while not file.exists():
        tab.page.evaluate("fetch('extras/mcp').then((reply) => reply.text())")


def test_an_allowed_tool_is_called_without_a_question(told: Path, tab: Tab) -> None:
    page = tab.page
    page.get_by_role("button", name="Settings of this chat").click()
    page.get_by_label("Let the model use MCP servers").check()
    asked(tab, "test__add", '{"a": 2, "b": 3}')
    expect(page.get_by_text("Call test__add?")).to_be_visible()
    answers(tab)
    page.get_by_role("button", name="Always in this chat").click()
    expect(tab.answers.get_by_text("Done.", exact=True)).to_be_visible()
    requests: list[dict[str, Any]] = []

    def reply(route: Route) -> None:
        requests.append(json.loads(route.request.post_data or ""))
        first = len(requests) == 1
        deltas = [call("test__add", '{"a": 4, "b": 4}')] if first else [{"content": "Eight."}]
        route.fulfill(
            content_type="text/event-stream", body=stream_of(deltas, "tool_calls" if first else "stop")
        )

    page.unroute(CHATS)
    page.route(CHATS, reply)
    tab.ask("And again.")
    expect(tab.answers.get_by_text("Eight.", exact=True)).to_be_visible()
    assert requests[1]["messages"][-1]["content"] == "8"


def test_a_pdf_is_counted_and_sent(tab: Tab) -> None:
    picker = tab.picker
    requests = answers(tab)
    picker.set_input_files({"name": "a.pdf", "mimeType": "application/pdf", "buffer": pdf("Good news.")})
    expect(tab.page.locator(".attached")).to_contain_text("a.pdf")
    tab.ask("What does it say?")
    tab.wait_for_answer()
    part = requests[0]["messages"][0]["content"][0]
    assert (part["type"], part["file"]["filename"]) == ("file", "a.pdf")
    tab.page.unroute(CHATS)
    tab.ask("Hi")  # a real answer: the model is in memory then
    tab.wait_for_answer()
    picker.set_input_files({"name": "b.pdf", "mimeType": "application/pdf", "buffer": pdf("More news.")})
    expect(tab.page.get_by_text("tokens with the chat before")).to_be_visible()
    tab.page.get_by_role("button", name="Remove b.pdf").click()
    tab.question.fill("many words " * 20_000)
    expect(tab.page.get_by_text("This does not fit: ")).to_be_visible()
    tab.question.fill("")
    tab.expected.append("400")
    picker.set_input_files({"name": "c.pdf", "mimeType": "application/pdf", "buffer": encrypted("x")})
    expect(tab.page.get_by_text("the PDF is encrypted")).to_be_visible()
