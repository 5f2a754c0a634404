"""The playground and the server panel."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from playwright.sync_api import expect

from jan_serve.constraint.enforce import enforce
from jan_serve.core.constraint import JsonSchemaConstraint, RegexConstraint
from tests.page.support import Tab
from tests.support.clients.raw_http import post

SCHEMA = {
    "type": "object",
    "properties": {"n": {"enum": [1, 2, 3]}},
    "required": ["n"],
    "additionalProperties": False,
}


def test_a_schema_becomes_a_grammar_and_an_answer_follows_it(tab: Tab) -> None:
    tab.show("Playground")
    tab.page.get_by_role("textbox", name="JSON Schema").fill(json.dumps(SCHEMA))
    expect(tab.page.locator("pre.code-box").first).to_have_text(
        enforce(JsonSchemaConstraint(SCHEMA)).gbnf().strip()
    )
    tab.page.get_by_label("Question").fill("Choose a number.")
    tab.page.get_by_role("button", name="Generate").click()
    expect(tab.page.get_by_text("✓ Valid JSON.")).to_be_visible()
    written = tab.page.get_by_label("Generated text").text_content()
    assert written is not None
    assert json.loads(written)["n"] in (1, 2, 3)


def test_an_expression_becomes_a_grammar_and_an_answer_follows_it(tab: Tab) -> None:
    tab.show("Playground")
    tab.page.get_by_label("Regular expression").check()
    tab.page.get_by_role("textbox", name="Regular expression").fill("[ab]{3}x")
    expect(tab.page.locator("pre.code-box").first).to_have_text(
        enforce(RegexConstraint("[ab]{3}x")).gbnf().strip()
    )
    tab.page.get_by_role("button", name="Generate").click()
    expect(tab.page.get_by_text("✓")).to_be_visible()


def test_a_schema_is_explained_with_its_cost_or_the_smallest_change(tab: Tab) -> None:
    tab.expected.append("400")
    tab.show("Playground")
    pair = [{"type": "boolean"}, {"type": "boolean"}]
    items: dict[str, Any] = {"type": "array", "prefixItems": pair, "minItems": 2, "maxItems": 2}
    refused: dict[str, Any] = {"type": "array", "items": items, "uniqueItems": True}
    field = tab.page.get_by_role("textbox", name="JSON Schema")
    field.fill(json.dumps(refused))
    expect(tab.page.get_by_role("alert")).to_contain_text("uniqueItems")
    lines = tab.page.get_by_role("list", name="Explanation").get_by_role("listitem")
    expect(lines.last).to_have_text("it compiles without `uniqueItems` at /")
    expect(tab.page.get_by_role("button", name="Generate")).to_be_disabled()
    field.fill(json.dumps({**refused, "items": {"type": "string"}, "maxItems": 2}))
    expect(tab.page.get_by_role("alert")).to_have_count(0)
    tab.page.get_by_text("Details").click()
    expect(lines.first).to_have_text("compiles")
    expect(tab.page.get_by_role("button", name="Generate")).to_be_enabled()
    del refused["uniqueItems"]
    field.fill(json.dumps(refused))
    expect(tab.page.get_by_role("alert")).to_have_count(0)
    expect(lines.first).to_have_text("compiles")


def test_options_have_bars_of_probability(tab: Tab) -> None:
    tab.show("Playground")
    tab.page.get_by_label("Options, with commas").fill("billing, shipping")
    tab.page.get_by_role("button", name="Decide").click()
    bars = tab.page.get_by_role("list", name="Probabilities").get_by_role("progressbar")
    expect(bars).to_have_count(2)
    shares = [float(bar.get_attribute("value") or 0) for bar in bars.all()]
    assert sum(shares) == pytest.approx(1)
    expect(tab.page.get_by_text(f"{100 * shares[0]:.1f} %", exact=True)).to_be_visible()
    expect(tab.page.get_by_text("would almost never give one of these")).to_be_visible()


def test_options_that_cannot_be_asked_are_refused(tab: Tab) -> None:
    tab.expected.append("400")
    tab.show("Playground")
    tab.page.get_by_label("Options, with commas").fill("same, same")
    tab.page.get_by_role("button", name="Decide").click()
    expect(tab.page.get_by_role("alert")).to_contain_text("occurs twice")


def test_rejections_name_the_place(tab: Tab) -> None:
    tab.expected.append("400")
    tab.show("Playground")
    field = tab.page.get_by_role("textbox", name="JSON Schema")
    field.fill('{"type": "objekt"}')
    expect(tab.page.get_by_role("alert")).to_contain_text("/type")
    expect(tab.page.get_by_role("button", name="Generate")).to_be_disabled()
    field.fill("{")
    expect(tab.page.get_by_role("alert")).to_contain_text("JSON")
    field.fill("true")
    expect(tab.page.get_by_role("alert")).to_have_count(0)


def test_the_server_panel_shows_what_happens(tab: Tab) -> None:
    post(tab.url, "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello!"}]})
    tab.show("Server")
    expect(tab.page.get_by_text("jan-serve 0.")).to_be_visible()
    memory = tab.page.locator(".tile").filter(has_text="Memory of models")
    expect(memory).to_contain_text("MB")
    expect(tab.page.locator(".tile").filter(has_text="Requests now")).to_contain_text("0 waiting")
    expect(tab.page.locator(".chart path.line")).to_be_attached()
    tab.page.get_by_role("button", name="Copy settings").click()
    expect(tab.page.get_by_text("Copied")).to_be_visible()
    copied: str = tab.page.evaluate("navigator.clipboard.readText()")
    assert f"OPENAI_BASE_URL={tab.url}/v1" in copied
    tab.page.get_by_label("Program", exact=True).select_option("Zed")
    expect(tab.page.locator(".code-box")).to_contain_text(f"{tab.url}/v1")
    expect(tab.page.get_by_text("settings.json").first).to_be_visible()


def test_the_server_panel_shows_what_the_last_self_check_found(tab: Tab) -> None:
    tab.show("Server")
    check = tab.page.get_by_role("region", name="Self-check")
    expect(check).to_contain_text("Version 9.1 on Jan 15, 2027")
    expect(check).to_contain_text("compared with 9.0")
    expect(check.get_by_role("listitem")).to_have_text("The device <b>GPU</b> is gone.")


def test_requests_open_into_lanes_and_causes(tab: Tab) -> None:
    body = {"messages": [{"role": "user", "content": "Name a river. " * 300}], "max_tokens": 4}
    headers = {"x-request-id": "seen-on-the-page"}
    assert post(tab.url, "/v1/chat/completions", body, headers=headers).status == 200
    tab.show("Server")
    tab.page.get_by_role("button", name="Why: seen-on-the-page").click()
    shown = tab.page.get_by_role("region", name="Request seen-on-the-page")
    expect(shown.get_by_role("img")).to_have_attribute("aria-label", re.compile("reading"))
    expect(shown).to_contain_text("tokens of the prompt were read")
    tab.page.get_by_role("button", name="Why: seen-on-the-page").click()
    expect(shown).to_have_count(0)


def test_a_request_opens_into_its_prompt_with_the_cached_part_shaded(tab: Tab) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    assert (
        post(tab.url, "/v1/chat/completions", body, headers={"x-request-id": "with-a-prompt"}).status == 200
    )
    text = "<img src=a onerror=alert(1)>🙂 cached, and read"
    prompts = [{"text": text, "cached_characters": text.index(",")}]
    answers: list[dict[str, Any]] = [
        {"status": 404, "json": {"error": {"message": "no", "code": "prompt_not_kept"}}},
        {"json": {"id": "with-a-prompt", "prompts": prompts}},
    ]
    tab.expected.append("404")
    tab.page.route("**/extras/requests/*/prompt", lambda route: route.fulfill(**answers.pop(0)))
    tab.show("Server")
    tab.page.get_by_role("button", name="Why: with-a-prompt").click()
    shown = tab.page.get_by_role("region", name="Request with-a-prompt")
    shown.get_by_text("Prompt", exact=True).click()
    expect(shown.get_by_text("keep_prompts")).to_be_visible()
    shown.get_by_text("Prompt", exact=True).click()
    shown.get_by_text("Prompt", exact=True).click()
    expect(shown.locator("mark")).to_have_text("<img src=a onerror=alert(1)>🙂 cached")
    expect(shown.locator("pre")).to_have_text(text)


def test_requests_are_downloaded_as_json(tab: Tab) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    assert post(tab.url, "/v1/chat/completions", body, headers={"x-request-id": "to-download"}).status == 200
    tab.show("Server")
    with tab.page.expect_download() as download:
        tab.page.get_by_role("button", name="Download as JSON").click()
    listed = json.loads(download.value.path().read_text(encoding="utf-8"))["data"]
    assert "to-download" in [row["id"] for row in listed]


def test_tokens_are_counted_by_day_model_and_program(tab: Tab) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    headers = {"user-agent": "<b>program</b>/1.0"}
    assert post(tab.url, "/v1/chat/completions", body, headers=headers).status == 200
    tab.show("Server")
    days = tab.page.get_by_role("region", name="Tokens a day")
    expect(days.get_by_role("row").filter(has_text="<b>program</b>").filter(has_text="first")).to_have_count(
        1
    )
