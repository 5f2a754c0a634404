"""Models in the page: chosen, loaded, unloaded, pulled, deleted; names are text."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Locator, Route, expect

from jan_serve.resources import builtin_model, catalogue_file
from jan_serve.store.hub.references import Catalogue
from tests.page.fixtures import HOSTILE_NAME
from tests.page.support import CHATS, Tab, cancelled
from tests.support.clients.raw_http import get
from tests.support.processes import wait_until
from tests.support.servers.fake_hub import FakeHub, FakeRepo, Fault

REPO = "org/small-GGUF"


def card(tab: Tab, name: str) -> Locator:
    return tab.page.get_by_role("listitem", name=name, exact=True)


def test_the_chosen_model_answers(tab: Tab) -> None:
    asked = tab.answer_chats_with({"content": "ok"})
    choice = tab.page.get_by_label("Model", exact=True)
    choice.select_option("second")
    tab.ask("hello")
    tab.wait_for_answer()
    choice.select_option("first")
    tab.ask("hello again")
    expect(tab.answers).to_have_count(2)
    tab.page.reload()
    expect(choice).to_have_value("first")
    assert [request["model"] for request in asked] == ["second", "first"]


@contextmanager
def listed_models(tab: Tab, changed: Callable[[dict[str, Any]], None]) -> Generator[None]:
    """The page starts again and reads the server's list of models with this change."""

    def fulfil(route: Route) -> None:
        answer = route.fetch()
        listed = answer.json()
        changed(listed)
        route.fulfill(response=answer, json=listed)

    tab.page.route("**/models", fulfil)
    tab.page.reload()
    yield
    # The page asks again and again.
    tab.page.unroute_all(behavior="ignoreErrors")


def row(listed: dict[str, Any], name: str) -> dict[str, Any]:
    return next(model for model in listed["data"] if model["id"] == name)


def test_a_base_model_is_announced_once_a_chat(tab: Tab) -> None:
    def change(listed: dict[str, Any]) -> None:
        row(listed, "first")["meta"]["has_chat_template"] = False

    with listed_models(tab, change):
        tab.answer_chats_with({"content": "ok"})
        notice = tab.page.get_by_text("This file has no chat template: it is a base model")
        expect(notice).to_have_count(1)
        for question in ("one", "two"):
            tab.ask(question)
            tab.wait_for_answer()
        expect(notice).to_have_count(1)
        tab.page.keyboard.press("Alt+n")
        expect(notice).to_have_count(1)
        tab.page.get_by_label("Model", exact=True).select_option("second")
        expect(notice).to_have_count(0)
        tab.show("Models")
        expect(card(tab, "first").locator(".facts")).to_contain_text("base model")
        expect(card(tab, "second").locator(".facts")).not_to_contain_text("base model")


def test_what_a_model_is_enough_for_is_on_its_card(tab: Tab) -> None:
    found = ["Codex: no, 2,048 tokens of context (32,768 are needed)", "Structured extraction at 2k: yes"]

    def change(listed: dict[str, Any]) -> None:
        row(listed, "first")["enough_for"] = found

    with listed_models(tab, change):
        tab.show("Models")
        said = card(tab, "first").get_by_role("list", name="What first is enough for")
        expect(said.get_by_role("listitem")).to_have_text(found)
        expect(card(tab, "second").get_by_role("list")).to_have_count(0)


def test_a_model_that_loads_is_said_to_load(tab: Tab) -> None:
    def change(listed: dict[str, Any]) -> None:
        row(listed, "first")["status"] = {"value": "loading", "progress": {"value": 0.4}}

    with listed_models(tab, change):
        tab.page.route(CHATS, lambda route: None)
        tab.ask("hello")
        expect(tab.page.get_by_text("Loading first…")).to_be_visible()
        expect(tab.page.get_by_text("is loaded")).to_have_count(0)
        expect(tab.answers.get_by_role("progressbar")).to_have_attribute("value", "0.4")
        tab.page.get_by_role("button", name="Stop").click()
        expect(tab.answers.get_by_text("Stopped.")).to_be_visible()


def test_chats_begin_with_the_default_model_of_the_server(tab: Tab) -> None:
    choice = tab.page.get_by_label("Model", exact=True)
    expect(choice).to_have_value("first")

    def change(listed: dict[str, Any]) -> None:
        assert listed["default"] == "first"
        listed["default"] = "second"

    with listed_models(tab, change):
        expect(choice).to_have_value("second")


def test_models_are_loaded_and_unloaded(tab: Tab) -> None:
    tab.show("Models")
    second = card(tab, "second")
    second.get_by_role("button", name="Load", exact=True).click()
    expect(second.locator(".state")).to_have_text("loaded")
    expect(second.locator(".facts")).to_contain_text("in memory")
    second.get_by_role("button", name="Unload").click()
    expect(second.locator(".state")).to_have_text("unloaded")


def test_a_model_is_pulled_paused_resumed_and_deleted(tab: Tab, hub: FakeHub) -> None:
    model = builtin_model()
    assert model is not None
    content = model.read_bytes()
    hub.repos[REPO] = FakeRepo({"small-Q8_0.gguf": content})
    hub.file_faults.append(Fault(stall_at=len(content) // 2))
    tab.show("Models")
    tab.page.get_by_label("Get a model from the hub").fill(REPO)
    tab.page.get_by_role("button", name="Pull").click()
    progress = tab.page.get_by_role("progressbar", name=f"Pulling {REPO}")
    before = cancelled(tab.url)
    expect(progress).to_have_attribute("value", re.compile(r"[1-9]\d*"))
    tab.page.get_by_role("button", name="Pause").click()
    expect(tab.page.get_by_text("Paused at")).to_be_visible()
    # Until then, a second pull would join the first one's transfer, which stalls.
    wait_until(lambda: cancelled(tab.url) == before + 1)
    tab.page.reload()
    expect(tab.page.get_by_text("Paused at")).to_be_visible()
    tab.page.get_by_role("button", name="Resume").click()
    expect(tab.page.get_by_text("is here")).to_be_visible()
    expect(progress).to_have_count(0)
    pulled = tab.page.get_by_label("Models on this server").get_by_role("listitem").filter(has_text="small")
    expect(pulled).to_have_count(1)
    resumed = hub.asked(f"/{REPO}/resolve/")
    assert len(resumed) == 2
    assert resumed[1].headers["range"].startswith("bytes=")
    pulled.get_by_role("button", name="Delete").click()
    expect(pulled).to_have_count(0)
    tab.page.get_by_role("button", name="Undo").click()
    expect(pulled).to_have_count(1)
    pulled.get_by_role("button", name="Delete").click()
    expect(pulled).to_have_count(0)
    tab.page.reload()
    wait_until(lambda: "small-Q8_0" not in get(tab.url, "/models").body.decode())


def test_a_pull_whose_stream_breaks_off_can_be_resumed_or_dismissed(tab: Tab) -> None:
    events = [
        {"event": "download_started", "data": {"name": "org/big", "reason": "", "total": 100}},
        {"event": "download_progress", "data": {"org/big/file.gguf": {"done": 40, "total": 100}}},
    ]
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    tab.page.route("**/models/pull", lambda route: route.fulfill(content_type="text/event-stream", body=body))
    tab.show("Models")
    tab.page.get_by_label("Get a model from the hub").fill("org/big")
    tab.page.get_by_role("button", name="Pull").click()
    expect(tab.page.get_by_role("alert")).to_contain_text("broke off")
    expect(tab.page.get_by_text("Paused at 40 B of 100 B")).to_be_visible()
    expect(tab.page.get_by_role("button", name="Resume")).to_be_enabled()
    tab.page.get_by_role("button", name="Dismiss").click()
    expect(tab.page.get_by_text("Paused at")).to_have_count(0)
    tab.page.reload()
    expect(tab.page.get_by_role("button", name="Pull")).to_be_enabled()
    expect(tab.page.get_by_text("Paused at")).to_have_count(0)


def test_what_another_program_downloads_answers_no_chat(tab: Tab) -> None:
    def change(listed: dict[str, Any]) -> None:
        half = {"value": "downloading", "progress": {"org/half.gguf": {"done": 1, "total": 2}}}
        listed["data"].insert(0, {**row(listed, "first"), "id": "org/half", "status": half})

    with listed_models(tab, change):
        tab.show("Models")
        expect(tab.page.get_by_text("Another program downloads org/half.")).to_be_visible()
        expect(card(tab, "org/half")).to_have_count(0)
        tab.show("Chat")
        expect(tab.page.get_by_role("option", name="org/half")).to_have_count(0)


def test_models_of_other_programs_are_used_with_one_button(tab: Tab) -> None:
    found = [
        ("ollama/small", "Ollama", "new"),
        (HOSTILE_NAME, "LM Studio", "new"),
        ("lost", "Jan", "unusable"),
    ]
    states = {name: state for name, _, state in found}

    def fulfil(route: Route) -> None:
        if route.request.method == "POST":
            name = json.loads(route.request.post_data or "")["model"]
            states[name] = "already here"
            route.fulfill(json={"success": True, "model": name})
            return
        rows = [
            {
                "id": name,
                "program": program,
                "size_bytes": 5e8,
                "state": states[name],
                "reason": "its file is missing",
            }
            for name, program, _ in found
        ]
        route.fulfill(json={"object": "list", "data": rows})

    tab.page.route("**/models/import", fulfil)
    tab.show("Models")
    section = tab.page.get_by_role("region", name="Models of other programs")
    expect(section.get_by_role("heading")).to_have_text("On this machine, from Ollama, LM Studio and Jan")
    section.get_by_text("One cannot be used").click()
    expect(section.get_by_text("lost (Jan): its file is missing")).to_be_visible()
    section.get_by_role("button", name="Use ollama/small").click()
    rows = section.get_by_role("list", name="Found models").get_by_role("listitem")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text(HOSTILE_NAME)
    expect(tab.page.locator("main img")).to_have_count(0)


def test_settings_of_a_model_are_explained_and_written_for_its_file(tab: Tab) -> None:
    tab.show("Models")
    hostile = card(tab, HOSTILE_NAME)
    hostile.get_by_role("button", name="Settings").click()
    expect(hostile.get_by_text("The longest conversation, with its answer.")).to_be_visible()
    hostile.get_by_label("Context, in tokens").fill("512")
    hostile.get_by_label("Answers at once").fill("2")
    expect(hostile.locator("pre")).to_be_visible()
    written = tomllib.loads(hostile.locator("pre").text_content() or "")
    assert written == {"models": {HOSTILE_NAME: {"n_ctx": 512, "parallel": 2}}}


def test_a_model_that_cannot_be_pulled_gives_the_reason(tab: Tab) -> None:
    tab.expected.append("404")
    tab.show("Models")
    tab.page.get_by_label("Get a model from the hub").fill("org/missing")
    tab.page.get_by_role("button", name="Pull").click()
    expect(tab.page.get_by_role("alert")).to_contain_text("org/missing")


def test_the_name_of_a_model_is_text(tab: Tab) -> None:
    choice = tab.page.get_by_label("Model", exact=True)
    choice.select_option(HOSTILE_NAME)
    tab.answer_chats_with({"content": "ok"})
    expect(choice).to_have_value(HOSTILE_NAME)
    tab.show("Models")
    expect(card(tab, HOSTILE_NAME)).to_be_visible()
    tab.show("Server")
    expect(tab.page.get_by_text("OPENAI_BASE_URL")).to_be_visible()
    tab.page.get_by_label("Program", exact=True).select_option("curl")
    expect(tab.page.locator(".code-box")).to_contain_text(HOSTILE_NAME)
    expect(tab.page.locator("img")).to_have_count(0)


def only_built_in(listed: dict[str, Any]) -> None:
    for model in listed["data"]:
        model["source"] = "built in"


def test_a_first_visit_advises_models_by_purpose_and_machine(tab: Tab) -> None:
    with listed_models(tab, only_built_in):
        offer = tab.page.get_by_role("region", name="A first model")
        cards = offer.get_by_role("list", name="Models to get").get_by_role("listitem")
        expect(tab.page.get_by_text("a tiny built-in model for trying the server")).to_be_visible()
        expect(cards).to_have_count(3)
        expect(offer.get_by_text("free for models")).to_be_visible()
        before = cards.all_text_contents()
        offer.get_by_label("A model for").select_option(label="embeddings, for search")
        expect(cards.first).to_contain_text("embedding")
        assert cards.all_text_contents() != before
        tab.page.get_by_role("button", name="What is jan-serve?").click()
        expect(tab.question).to_have_value("What is jan-serve?")
        offer.get_by_role("link", name="All models").click()
        expect(tab.page.get_by_role("heading", name="Models", exact=True)).to_be_visible()


@pytest.mark.parametrize("fits", [False, True])
def test_cards_say_whether_a_model_fits(tab: Tab, fits: bool) -> None:
    def fulfil(route: Route) -> None:
        answer = route.fetch()
        listed = answer.json()
        for model in listed["data"]:
            model["fits"] = fits
        route.fulfill(response=answer, json=listed)

    tab.page.route("**/extras/catalogue", fulfil)
    tab.show("Models")
    suggested = tab.page.get_by_role("list", name="Models to get").get_by_role("listitem")
    n_models = len(Catalogue.read(catalogue_file()).entries())
    expect(suggested).to_have_count(n_models)
    expect(suggested.get_by_text("fits", exact=True)).to_have_count(n_models if fits else 0)
    expect(suggested.get_by_text("needs more memory")).to_have_count(0 if fits else n_models)


def test_a_card_pulls_its_model(tab: Tab, hub: FakeHub) -> None:
    model = builtin_model()
    assert model is not None
    entry = min(Catalogue.read(catalogue_file()).entries(), key=lambda entry: entry.size_gb)
    hub.repos[entry.repo] = FakeRepo({entry.file: model.read_bytes()})
    tab.show("Models")
    tab.page.get_by_role("listitem", name=entry.name, exact=True).get_by_role("button", name="Get it").click()
    expect(tab.page.get_by_text("is here")).to_be_visible()
    expect(tab.page.get_by_role("list", name="Models to get")).not_to_contain_text(entry.title)
    expect(tab.page.get_by_label("Models on this server")).to_contain_text(entry.file.removesuffix(".gguf"))


def test_example_questions_fill_the_field(tab: Tab) -> None:
    example = tab.page.locator(".examples button").first
    text = example.text_content()
    example.click()
    expect(tab.question).to_have_value(text or "")
    expect(tab.question).to_be_focused()
