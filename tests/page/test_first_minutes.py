"""The first ten minutes of a person: from a fresh server to a model, and chats with files and tools in two browsers."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, FilePayload, expect

from jan_serve.resources import builtin_model, catalogue_file
from jan_serve.store.hub.references import Catalogue
from tests.page.fixtures import START_S
from tests.page.support import Tab, opened_tab
from tests.page.test_batches import line, send
from tests.page.test_chats import listed
from tests.page.test_tools import answers, asked
from tests.support.media.pdfs import pdf
from tests.support.media.pictures import RED, encoded
from tests.support.servers.fake_hub import FakeHub, FakeRepo, Fault
from tests.support.servers.mcp_server import entry
from tests.support.servers.served import serving


def test_from_a_fresh_server_to_chats_in_two_browsers_and_a_batch(
    browser: Browser, built_page: None, tmp_path: Path, hub: FakeHub
) -> None:
    config = f'data_dir = "data"\nmodels_dir = "models"\nhf_endpoint = "{hub.url}"\n'
    (tmp_path / "config.toml").write_text(config, encoding="utf-8")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mcp.json").write_text(json.dumps({"mcpServers": {"test": entry()}}))
    with (
        serving(tmp_path, "--port", "0", "--threads", "1") as server,
        opened_tab(browser, url := server.url(START_S)) as tab,
    ):
        asks_the_built_in_model(tab)
        pulled = pulls_an_advised_model(tab, hub)
        branches_a_chat(tab, pulled)
        finds_the_chat_again(tab)
        shows_a_picture(tab)
        sends_a_pdf(tab)
        calls_a_tool(tab)
        with opened_tab(browser, url) as other:
            searches_all_chats(other)
        card = send(tab, "later.jsonl", *(line(str(number), model=pulled) for number in range(5)))
        expect(card.locator(".state")).to_have_text("done")
        expect(card).to_contain_text("5 of 5 answered")


def asks_the_built_in_model(tab: Tab) -> None:
    expect(tab.page.get_by_text("jan-tiny is a tiny built-in model")).to_be_visible()
    tab.page.locator(".examples button").first.click()
    tab.question.press("Enter")
    tab.wait_for_answer()


def pulls_an_advised_model(tab: Tab, hub: FakeHub) -> str:
    """Pull the first model that is advised, over a line that breaks in the middle; its name."""
    tab.page.get_by_role("button", name="New chat").click()
    card = tab.page.get_by_role("list", name="Models to get").get_by_role("listitem").first
    name = card.get_attribute("aria-label")
    entry = next(entry for entry in Catalogue.read(catalogue_file()).entries() if entry.name == name)
    model = builtin_model()
    assert model is not None
    content = model.read_bytes()
    hub.repos[entry.repo] = FakeRepo({entry.file: content})
    hub.file_faults.append(Fault(cut_at=math.floor(len(content) / 2)))
    before = len(hub.asked("/resolve/"))
    card.get_by_role("button", name="Get it").click()
    model_field = tab.page.get_by_label("Model", exact=True)
    expect(model_field).to_have_value(re.compile(re.escape(entry.file.removesuffix(".gguf")) + "$"))
    resumed = hub.asked("/resolve/")[before:]
    assert [asked.headers.get("range") is not None for asked in resumed] == [False, True]
    return model_field.input_value()


def branches_a_chat(tab: Tab, model: str) -> None:
    expect(tab.page.get_by_text(f"{model} answers, on this server.")).to_be_visible()
    tab.ask("Hello!")
    tab.wait_for_answer()
    tab.page.get_by_role("button", name="Regenerate").click()
    versions = tab.answers.get_by_role("group", name="Versions")
    expect(versions).to_contain_text("2/2")
    tab.wait_for_answer()
    versions.get_by_role("button", name="Earlier version").click()
    expect(versions).to_contain_text("1/2")


def finds_the_chat_again(tab: Tab) -> None:
    tab.page.reload()
    listed(tab).filter(has_text="Hello!").click()
    expect(tab.answers.get_by_role("group", name="Versions")).to_contain_text("1/2")
    expect(tab.answers.locator(".markdown")).not_to_be_empty()


def shows_a_picture(tab: Tab) -> None:
    tab.page.get_by_role("button", name="New chat").click()
    tab.page.get_by_label("Model", exact=True).select_option("jan-tiny")
    expect(tab.page.get_by_role("button", name="Attach pictures or text files")).to_be_visible()
    tab.page.get_by_role("button", name="Settings of this chat").click()
    tab.page.get_by_label("Temperature").fill("0")
    drawn = Image.new("RGB", (600, 400), "white")
    drawn.paste(RED, (200, 100, 400, 300))
    file: FilePayload = {"name": "red.png", "mimeType": "image/png", "buffer": encoded(drawn)}
    tab.picker.set_input_files(file)
    expect(tab.page.locator(".attached").get_by_role("img", name="red.png")).to_be_visible()
    tab.ask("What is in this picture?")
    tab.wait_for_answer()
    expect(
        tab.page.get_by_role("article", name="Question").get_by_role("img", name="red.png")
    ).to_be_visible()
    expect(tab.answers.get_by_role("alert")).to_have_count(0)
    expect(tab.answers.locator(".markdown")).to_have_text("I see a red square.")


def sends_a_pdf(tab: Tab) -> None:
    tab.page.get_by_role("button", name="New chat").click()
    tab.picker.set_input_files(
        {"name": "news.pdf", "mimeType": "application/pdf", "buffer": pdf("Good news.")}
    )
    expect(tab.page.locator(".attached")).to_contain_text("news.pdf")
    expect(tab.page.get_by_text("tokens with the chat before")).to_be_visible()
    tab.ask("What does it say?")
    tab.wait_for_answer()
    expect(tab.answers.get_by_role("alert")).to_have_count(0)
    expect(tab.answers.locator(".markdown")).not_to_be_empty()


def calls_a_tool(tab: Tab) -> None:
    """A call that is scripted, of a real MCP server."""
    tab.page.get_by_role("button", name="New chat").click()
    tab.page.get_by_label("Let the model use MCP servers").check()
    asked(tab, "test__add", '{"a": 2, "b": 3}')
    expect(tab.page.get_by_text("Call test__add?")).to_be_visible()
    answers(tab)
    tab.page.get_by_role("button", name="Allow").click()
    expect(tab.page.get_by_role("article", name="Result of a tool")).to_contain_text("5")
    expect(tab.answers.get_by_text("Done.", exact=True)).to_be_visible()


def searches_all_chats(other: Tab) -> None:
    """In a browser that has seen none of them."""
    for question in ("Please call it.", "What does it say?", "What is in this picture?", "Hello!"):
        other.page.get_by_label("Search chats").fill(question.rstrip(".?!"))
        found = listed(other).filter(has_text=question)
        expect(found).to_have_count(1)
        expect(listed(other)).to_have_count(1)
        found.click()
        expect(other.page.get_by_role("article", name="Question").last).to_contain_text(question)
    expect(other.answers.get_by_role("group", name="Versions")).to_contain_text("1/2")
