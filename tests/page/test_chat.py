"""Chats: asked, stopped, changed, kept, and shown without trust."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Browser, FilePayload, Page, Route, expect

from jan_serve.image_files import checked_header
from tests.page.fixtures import ENDLESS
from tests.page.support import CHATS, KEY, Tab, cancelled, opened_tab
from tests.support.clients.raw_http import get
from tests.support.media.pictures import RED, encoded, picture
from tests.support.processes import wait_until

PIXEL = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)
"""A PNG of one pixel."""

HOSTILE = """\
<img src=x onerror="alert(1)"><script>alert(2)</script>

![a picture](https://elsewhere.invalid/p.png) [a link](javascript:alert(3)) [good](https://good.invalid/)

```html
<b onclick="alert(4)">bold</b>
```

| a | b |
|---|---|
| 1 | **2** |
"""


def clipboard(page: Page) -> str:
    text: str = page.evaluate("navigator.clipboard.readText()")
    return text


def test_a_question_is_answered_by_the_model(tab: Tab) -> None:
    tab.ask("Hello! Who are you?")
    tab.wait_for_answer()
    expect(tab.answers).to_have_count(1)
    expect(tab.answers.locator(".markdown")).not_to_be_empty()
    expect(tab.answers.get_by_text("tokens/s")).to_be_visible()


def test_an_answer_can_be_stopped_and_the_server_hears_of_it(tab: Tab) -> None:
    def long(route: Route) -> None:
        body = {**json.loads(route.request.post_data or ""), **ENDLESS}
        route.continue_(post_data=json.dumps(body))

    before = cancelled(tab.url)
    tab.page.route(CHATS, long)
    tab.ask("Tell me everything.")
    expect(tab.answers.locator(".markdown")).not_to_be_empty()
    tab.page.get_by_role("button", name="Stop").click()
    expect(tab.answers.get_by_text("Stopped.")).to_be_visible()
    expect(tab.answers.locator(".markdown")).not_to_be_empty()
    wait_until(lambda: cancelled(tab.url) == before + 1)


def test_a_question_can_be_edited_and_an_answer_written_anew(tab: Tab) -> None:
    asked = tab.answer_chats_with({"content": "ok"})
    tab.ask("one")
    tab.wait_for_answer()
    tab.ask("two")
    expect(tab.answers).to_have_count(2)
    tab.page.get_by_role("button", name="Regenerate").first.click()
    expect(tab.answers).to_have_count(1)
    tab.wait_for_answer()
    tab.page.get_by_role("button", name="Edit").click()
    tab.page.get_by_label("Edit your question").fill("three")
    tab.page.get_by_role("button", name="Ask again").click()
    expect(tab.page.get_by_text("three").last).to_be_visible()
    tab.wait_for_answer()
    asked_texts = [[message["content"] for message in request["messages"]] for request in asked]
    assert asked_texts == [["one"], ["one", "ok", "two"], ["one"], ["three"]]
    versions = tab.page.get_by_role("group", name="Versions")
    expect(versions).to_contain_text("2/2")
    versions.get_by_role("button", name="Earlier version").click()
    expect(tab.page.get_by_text("one", exact=True).last).to_be_visible()
    expect(versions).to_contain_text(["1/2", "2/2"])
    versions.last.get_by_role("button", name="Earlier version").click()
    expect(tab.answers).to_have_count(2)
    expect(tab.page.get_by_text("two", exact=True)).to_be_visible()
    tab.page.reload()
    tab.page.locator(".open-chat").click()
    expect(tab.answers).to_have_count(2)
    expect(versions).to_contain_text(["1/2", "1/2"])


def test_chats_are_found_by_what_was_said(tab: Tab) -> None:
    tab.answer_chats_with({"content": "ok"})
    for number in range(4):
        tab.ask(f"about {['rivers', 'clouds', 'stones', 'trees'][number]}")
        tab.wait_for_answer()
        tab.page.get_by_role("button", name="New chat").click()
    listed = tab.page.locator(".open-chat")
    expect(listed).to_have_count(4)
    tab.page.get_by_role("searchbox", name="Search chats").fill("CLOUD")
    expect(listed).to_have_text(["about clouds"])
    tab.page.get_by_role("searchbox", name="Search chats").fill("nothing like it")
    expect(tab.page.get_by_text("No chat has this text.")).to_be_visible()


def test_the_last_question_comes_back_with_the_arrow_key(tab: Tab) -> None:
    asked = tab.answer_chats_with({"content": "ok"})
    tab.ask("one")
    tab.wait_for_answer()
    tab.question.press("ArrowUp")
    expect(tab.question).to_have_value("one")
    tab.question.press("End")
    tab.question.type(" more")
    tab.question.press("Enter")
    expect(tab.page.get_by_label("Your question", exact=True)).to_have_value("")
    tab.wait_for_answer()
    expect(tab.page.locator(".bubble")).to_have_text("one more")
    assert [message["content"] for message in asked[-1]["messages"]] == ["one more"]


def new_chat(tab: Tab) -> None:
    tab.page.keyboard.press("Alt+n")


def other_chat(tab: Tab) -> None:
    tab.page.locator(".open-chat", has_text="another").click()


def deleted_chat(tab: Tab) -> None:
    tab.page.get_by_role("button", name="Delete one").click()


def texts(request: dict[str, Any]) -> list[str]:
    return [message["content"] for message in request["messages"]]


@pytest.mark.parametrize(
    ("leave", "before"),
    [(new_chat, []), (other_chat, ["another", "ok"]), (deleted_chat, [])],
)
def test_what_is_edited_stays_with_its_chat(
    tab: Tab, leave: Callable[[Tab], None], before: list[str]
) -> None:
    asked = tab.answer_chats_with({"content": "ok"})
    for question in ("another", "one"):
        new_chat(tab)
        tab.ask(question)
        tab.wait_for_answer()
    tab.question.press("ArrowUp")
    expect(tab.page.get_by_text("Editing your last question")).to_be_visible()
    leave(tab)
    expect(tab.question).to_have_value("")
    expect(tab.page.get_by_text("Editing your last question")).to_have_count(0)
    tab.ask("fresh")
    tab.wait_for_answer()
    expect(tab.page.locator(".bubble").last).to_have_text("fresh")
    assert texts(asked[-1]) == [*before, "fresh"]
    if leave is deleted_chat:
        return
    tab.page.locator(".open-chat", has_text="one").click()
    expect(tab.question).to_have_value("one")
    expect(tab.page.get_by_text("Editing your last question")).to_be_visible()
    tab.question.fill("one more")
    tab.question.press("Enter")
    expect(tab.page.locator(".bubble")).to_have_text("one more")
    tab.wait_for_answer()
    assert texts(asked[-1]) == ["one more"]


def test_what_is_typed_and_attached_stays_with_its_chat(tab: Tab) -> None:
    asked = tab.answer_chats_with({"content": "ok"})
    tab.ask("one")
    tab.wait_for_answer()
    tab.question.fill("half a question")
    note = FilePayload(name="note.txt", mimeType="text/plain", buffer=b"a note")
    tab.picker.set_input_files([note])
    attached = tab.page.locator(".attached")
    expect(attached.get_by_text("note.txt")).to_be_visible()
    new_chat(tab)
    expect(tab.question).to_have_value("")
    expect(attached).to_have_count(0)
    tab.question.fill("another half")
    tab.show("Models")
    tab.show("Chat")
    expect(tab.question).to_have_value("another half")
    new_chat(tab)
    expect(tab.question).to_have_value("another half")
    tab.page.locator(".open-chat", has_text="one").click()
    expect(tab.question).to_have_value("half a question")
    expect(attached.get_by_text("note.txt")).to_be_visible()
    tab.question.press("Enter")
    tab.wait_for_answer()
    assert texts(asked[-1]) == ["one", "ok", "note.txt:\n\na note\n\nhalf a question"]


def test_another_model_may_answer_an_edited_question_with_a_file(tab: Tab) -> None:
    asked = tab.answer_chats_with({"content": "ok"})
    tab.ask("one")
    tab.wait_for_answer()
    tab.question.press("ArrowUp")
    tab.page.get_by_label("Model", exact=True).select_option("second")
    note = FilePayload(name="note.txt", mimeType="text/plain", buffer=b"a note")
    tab.picker.set_input_files([note])
    expect(tab.page.locator(".attached").get_by_text("note.txt")).to_be_visible()
    tab.question.press("Enter")
    tab.wait_for_answer()
    assert (asked[-1]["model"], texts(asked[-1])) == ("second", ["note.txt:\n\na note\n\none"])


def test_a_question_that_another_tab_dropped_is_not_edited(tab: Tab) -> None:
    asked = tab.answer_chats_with({"content": "ok"})
    tab.ask("one")
    tab.wait_for_answer()
    tab.ask("two")
    expect(tab.answers).to_have_count(2)
    tab.wait_for_answer()
    tab.question.press("ArrowUp")
    other = tab.page.context.new_page()
    other.goto(tab.url)
    Tab(other, tab.url).answer_chats_with({"content": "ok"})
    other.locator(".open-chat").click()
    other.get_by_role("button", name="Regenerate").first.click()
    expect(tab.answers).to_have_count(1)
    # The other tab's answer is whole, so that the next question follows it.
    expect(tab.answers.get_by_role("group", name="Versions")).to_contain_text("2/2")
    expect(tab.answers.locator(".markdown")).to_have_text("ok")
    expect(tab.page.get_by_text("Editing your last question")).to_have_count(0)
    tab.question.press("Enter")
    expect(tab.answers).to_have_count(2)
    tab.wait_for_answer()
    assert texts(asked[-1]) == ["one", "ok", "two"]


def test_conversations_are_kept_in_the_browser(tab: Tab) -> None:
    tab.answer_chats_with({"content": "the first answer"})
    tab.ask("first question")
    tab.wait_for_answer()
    tab.page.keyboard.press("Alt+n")
    tab.ask("second question")
    tab.wait_for_answer()
    tab.page.reload()
    listed = tab.page.locator(".open-chat")
    expect(listed).to_have_text(["second question", "first question"])
    listed.nth(1).click()
    expect(tab.answers.get_by_text("the first answer")).to_be_visible()
    tab.page.get_by_role("button", name="Rename first question").click()
    tab.page.get_by_label("Title").fill("renamed")
    tab.page.get_by_label("Title").press("Enter")
    expect(listed.first).to_have_text("renamed")
    tab.page.get_by_role("button", name="Delete second question").click()
    expect(listed).to_have_text(["renamed"])
    tab.page.get_by_role("button", name="Undo").click()
    expect(listed).to_have_text(["renamed", "second question"])
    tab.page.get_by_role("button", name="Delete second question").click()
    expect(listed).to_have_text(["renamed"])
    tab.page.reload()
    expect(listed).to_have_text(["renamed"])


def test_other_tabs_see_what_is_written(tab: Tab) -> None:
    tab.answer_chats_with({"content": "an answer"})
    other = tab.page.context.new_page()
    other.goto(tab.url)
    expect(other.get_by_label("Your question", exact=True)).to_be_visible()
    tab.ask("from the first tab")
    tab.wait_for_answer()
    other.get_by_role("button", name="from the first tab", exact=True).click()
    expect(other.get_by_role("article", name="Answer")).to_contain_text("an answer")
    tab.page.get_by_role("button", name="Delete from the first tab").click()
    expect(other.locator(".open-chat")).to_have_count(0)


def test_a_chat_can_be_downloaded(tab: Tab) -> None:
    tab.answer_chats_with({"content": "It is **cold**."})
    tab.ask("Is it cold?")
    tab.wait_for_answer()
    tab.page.get_by_role("button", name="Settings of this chat").click()
    with tab.page.expect_download() as download:
        tab.page.get_by_role("button", name="Download this chat").click()
    assert download.value.suggested_filename == "Is-it-cold.md"
    assert "## Answer of first\n\nIt is **cold**.\n" in download.value.path().read_text("utf-8")


def test_what_a_model_writes_is_shown_and_never_run(tab: Tab) -> None:
    tab.answer_chats_with({"content": HOSTILE})
    tab.ask("go on")
    tab.wait_for_answer()
    answer = tab.answers.locator(".markdown")
    expect(answer.get_by_text('<img src=x onerror="alert(1)">')).to_be_visible()
    expect(answer.locator("img, script, [onclick], [onerror]")).to_have_count(0)
    expect(answer.get_by_role("link")).to_have_text(["a picture", "good"])
    expect(answer.locator("a[href^='javascript']")).to_have_count(0)
    expect(answer.get_by_role("link", name="good")).to_have_attribute("rel", "noopener noreferrer")
    expect(answer.locator("td strong")).to_have_text("2")
    expect(answer.locator(".code-language")).to_have_text("html")
    expect(answer.locator("pre .hljs-tag").first).to_be_visible()
    answer.get_by_role("button", name="Copy code").click()
    expect(tab.page.get_by_text("Copied")).to_be_visible()
    assert clipboard(tab.page) == '<b onclick="alert(4)">bold</b>'


def test_thoughts_are_folded(tab: Tab) -> None:
    tab.answer_chats_with({"reasoning_content": "let me see"}, {"content": "42"})
    tab.ask("what is it?")
    tab.wait_for_answer()
    thoughts = tab.answers.locator("details")
    expect(thoughts.get_by_text("let me see")).to_be_hidden()
    thoughts.get_by_text("Thoughts").click()
    expect(thoughts.get_by_text("let me see")).to_be_visible()


def test_calls_of_tools_are_shown_and_answered(tab: Tab) -> None:
    function = {"name": "weather", "arguments": '{"city": "Oslo"}'}
    call = {"index": 0, "id": "c1", "type": "function", "function": function}
    asked = tab.answer_chats_with({"tool_calls": [call]}, finish="tool_calls")
    tab.page.get_by_role("button", name="Settings of this chat").click()
    tab.page.get_by_label("Tools").fill("[nothing")
    expect(tab.page.get_by_text("The tools are not JSON")).to_be_visible()
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
    tab.page.get_by_label("Tools").fill(json.dumps(tools))
    tab.ask("Is it cold in Oslo?")
    tab.wait_for_answer()
    expect(tab.answers.locator(".call")).to_contain_text('"city": "Oslo"')
    tab.page.unroute(CHATS)
    again = tab.answer_chats_with({"content": "It is."})
    tab.page.get_by_label("Result of weather").fill("-5 °C")
    tab.page.get_by_role("button", name="Give result").click()
    expect(tab.answers.get_by_text("It is.", exact=True)).to_be_visible()
    assert asked[0]["tools"] == tools
    assert again[0]["messages"][1]["tool_calls"][0]["function"] == function
    assert again[0]["messages"][2] == {"role": "tool", "content": "-5 °C", "tool_call_id": "c1"}


def test_settings_and_text_files_go_with_the_question(tab: Tab) -> None:
    asked = tab.answer_chats_with({"content": "ok"})
    tab.page.get_by_role("button", name="Settings of this chat").click()
    tab.page.get_by_label("Instructions").fill("Be brief.")
    tab.page.get_by_label("Temperature").fill("0.2")
    tab.page.get_by_label("Longest answer").fill("50")
    tab.page.get_by_label("Thinking").select_option("Off")
    picker = tab.picker
    picker.set_input_files({"name": "a.txt", "mimeType": "text/plain", "buffer": "héllo".encode()})
    expect(tab.page.locator(".attached")).to_contain_text("a.txt")
    picker.set_input_files({"name": "b.png", "mimeType": "image/png", "buffer": b"\x89PNG"})
    expect(tab.page.get_by_text("b.png: this model does not see pictures")).to_be_visible()
    tab.ask("What does it say?")
    tab.wait_for_answer()
    request = asked[0]
    assert (request["temperature"], request["max_tokens"], request["reasoning_effort"]) == (0.2, 50, "none")
    assert request["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "a.txt:\n\nhéllo\n\nWhat does it say?"},
    ]


@pytest.fixture
def seeing(tab: Tab) -> Tab:
    """Its models see pictures."""
    models = get(tab.url, "/models").json()
    for model in models["data"]:
        model["architecture"]["input_modalities"].append("image")
    tab.page.route("**/models", lambda route: route.fulfill(json=models))
    tab.page.reload()
    tab.page.get_by_role("button", name="Attach pictures or text files").wait_for()
    return tab


PASTE = "new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true})"
DROP = "new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true})"


def bring(tab: Tab, content: bytes, event: str = PASTE) -> None:
    """Paste or drop a picture on the field for questions, as dot.png."""
    tab.question.evaluate(
        f"""(field, bytes) => {{
            const data = new DataTransfer();
            data.items.add(new File([new Uint8Array(bytes)], "dot.png", {{type: "image/png"}}));
            field.dispatchEvent({event});
        }}""",
        list(content),
    )
    expect(tab.page.locator(".attached").get_by_role("img", name="dot.png")).to_have_count(1)


@pytest.mark.parametrize("event", [PASTE, DROP], ids=["pasted", "dropped"])
def test_a_picture_is_pasted_or_dropped(seeing: Tab, event: str) -> None:
    asked = seeing.answer_chats_with({"content": "A dot."})
    bring(seeing, PIXEL, event)
    expect(seeing.page.locator(".attached")).to_contain_text(f"{len(PIXEL)} B")
    seeing.ask("What is it?")
    seeing.wait_for_answer()
    url = f"data:image/png;base64,{b64encode(PIXEL).decode()}"
    assert asked[0]["messages"][0]["content"][1] == {"type": "image_url", "image_url": {"url": url}}


def test_pictures_go_to_a_model_that_sees_them(seeing: Tab) -> None:
    tab = seeing
    asked = tab.answer_chats_with({"content": "A dot."})
    files: list[FilePayload] = [
        {"name": name, "mimeType": "image/png", "buffer": PIXEL} for name in ("dot.png", "other.png")
    ]
    tab.picker.set_input_files(files)
    expect(tab.page.locator(".attached").get_by_role("img")).to_have_count(2)
    tab.page.get_by_role("button", name="Remove other.png").click()
    tab.ask("What is it?")
    tab.wait_for_answer()
    url = f"data:image/png;base64,{b64encode(PIXEL).decode()}"
    text, picture = asked[0]["messages"][0]["content"]
    assert text == {"type": "text", "text": "What is it?"}
    assert picture == {"type": "image_url", "image_url": {"url": url}}
    shown = tab.page.get_by_role("img", name="dot.png")
    assert shown.evaluate("picture => picture.decode().then(() => picture.naturalWidth)") == 1


def test_a_picture_needs_no_words(seeing: Tab) -> None:
    asked = seeing.answer_chats_with({"content": "A dot."})
    bring(seeing, PIXEL)
    seeing.ask("")
    seeing.wait_for_answer()
    assert len(asked) == 1
    expect(seeing.page.locator(".open-chat")).to_have_text(["dot.png"])
    expect(seeing.page.locator(".bubble")).to_have_count(0)


def test_a_large_picture_is_drawn_smaller_and_one_that_is_damaged_stays_out(seeing: Tab) -> None:
    asked = seeing.answer_chats_with({"content": "Red."})
    picker = seeing.picker
    picker.set_input_files({"name": "broken.png", "mimeType": "image/png", "buffer": PIXEL[:30]})
    expect(seeing.page.get_by_text("broken.png: this browser cannot read the picture")).to_be_visible()
    large = picture(3000, 1500, "BMP")
    picker.set_input_files({"name": "large.bmp", "mimeType": "image/bmp", "buffer": large})
    expect(seeing.page.locator(".attached").get_by_role("img")).to_have_count(1)
    seeing.ask("What colour is it?")
    seeing.wait_for_answer()
    sent = b64decode(asked[0]["messages"][0]["content"][1]["image_url"]["url"].partition("base64,")[2])
    header = checked_header(sent)
    assert (header.format, header.width, header.height) == ("JPEG", 2828, 1414)
    assert len(sent) < len(large) / 50


def test_more_files_than_go_with_a_question_are_named(seeing: Tab) -> None:
    files: list[FilePayload] = [
        {"name": f"{number}.txt", "mimeType": "text/plain", "buffer": b"x"} for number in range(11)
    ]
    seeing.picker.set_input_files(files)
    expect(seeing.page.get_by_text("10 files at most go with a question")).to_be_visible()
    expect(seeing.page.locator(".attached li")).to_have_count(10)


def test_the_built_in_model_says_what_a_pasted_picture_shows(browser: Browser, keyed_url: str) -> None:
    drawn = Image.new("RGB", (600, 400), "white")
    drawn.paste(RED, (200, 100, 400, 300))
    with opened_tab(browser, keyed_url) as tab:
        tab.expected.append("401")
        tab.page.get_by_label("API key").fill(KEY)
        tab.page.get_by_role("button", name="Use this key").click()
        tab.page.get_by_role("button", name="Attach pictures or text files").wait_for()
        tab.page.get_by_role("button", name="Settings of this chat").click()
        tab.page.get_by_label("Temperature").fill("0")
        bring(tab, encoded(drawn))
        tab.ask("What is in this picture?")
        tab.wait_for_answer()
        expect(tab.answers.locator(".markdown")).to_have_text("I see a red square.")
        expect(tab.page.get_by_role("article", name="Question").get_by_role("img")).to_have_count(1)


def test_a_failure_is_shown_and_can_be_retried(tab: Tab) -> None:
    tab.expected.append("503")
    error = {"error": {"message": "The model is gone.", "code": "model_failed"}}
    tab.page.route(CHATS, lambda route: route.fulfill(status=503, json=error))
    tab.ask("hello")
    expect(tab.answers.get_by_role("alert")).to_have_text("The model is gone.")
    tab.page.unroute(CHATS)
    tab.answer_chats_with({"content": "back again"})
    tab.page.get_by_role("button", name="Regenerate").click()
    expect(tab.answers.get_by_text("back again", exact=True)).to_be_visible()
    expect(tab.answers.get_by_role("alert")).to_have_count(0)


def test_an_error_inside_of_a_stream_keeps_what_came_before(tab: Tab) -> None:
    error = json.dumps({"error": {"message": "It broke.", "code": "engine_crashed"}})
    chunk = json.dumps({"choices": [{"index": 0, "delta": {"content": "half of"}, "finish_reason": None}]})
    body = f"data: {chunk}\n\ndata: {error}\n\n"
    tab.page.route(CHATS, lambda route: route.fulfill(content_type="text/event-stream", body=body))
    tab.ask("hello")
    expect(tab.answers.get_by_role("alert")).to_have_text("It broke.")
    expect(tab.answers.locator(".markdown")).to_have_text("half of")
