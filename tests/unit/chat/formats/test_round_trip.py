"""For every format, its parser reads what its layout writes, at every cut."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from jan_serve.chat.call_layout import PythonArguments
from jan_serve.chat.chat_format import ChatFormat, StreamParser
from jan_serve.chat.detect import FORMATS
from jan_serve.chat.formats.python_calls import LFM2, LLAMA3
from jan_serve.chat.tools_as_text import write_calls
from jan_serve.core.events import ToolCallDelta
from tests.support.drawn_grid import some
from tests.unit.chat.formats.answers import TOOLS, Answer, call, parse, parse_everywhere

pytestmark = pytest.mark.drawn

thinking_formats = pytest.mark.parametrize(
    "chat_format",
    [chat_format for chat_format in FORMATS if chat_format.thought is not None],
    ids=lambda chat_format: chat_format.name,
)

HARD_TEXT = "Oslo \"N\" \\ {x}: </a> é\u2028 [1], 'q' & <b>\nline"

CALLS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "one": [("get_weather", {"city": "Oslo", "days": 2})],
    "hard text": [("get_weather", {"city": HARD_TEXT})],
    "empty text": [("get_weather", {"city": ""})],
    "no arguments": [("now", {})],
    "nested": [
        ("add", {"values": [1, 2.5, -3], "opts": {"k": True, "n": None, "s": "a 'b' \\ c", "o": {"e": [0]}}})
    ],
    "two": [("get_weather", {"city": "Oslo"}), ("add", {"values": [1, 2]})],
    "three": [("now", {}), ("add", {"values": [7], "opts": {"a": 1}}), ("now", {})],
}

all_formats = pytest.mark.parametrize("chat_format", FORMATS, ids=lambda chat_format: chat_format.name)


def written(chat_format: ChatFormat, calls: list[tuple[str, dict[str, Any]]]) -> str:
    return write_calls(
        chat_format.calls,
        [call(name, arguments, f"calls{at:04}") for at, (name, arguments) in enumerate(calls)],
    )


@all_formats
def test_calls_are_read_as_they_were_written(chat_format: ChatFormat) -> None:
    for calls in CALLS.values():
        answer = parse_everywhere(chat_format, written(chat_format, calls))
        assert answer.values() == calls
        assert (answer.text, answer.reasoning) == ("", "")


def assert_nothing_of_a_cut_call_is_text(
    chat_format: ChatFormat, before: str, calls: list[tuple[str, dict[str, Any]]], text: str = ""
) -> None:
    """At a quarter of the places of the calls; at every fourth of them, also where the text came by characters."""
    whole = before + written(chat_format, calls)
    for at in some(range(len(before), len(whole)), 8 + (len(whole) - len(before)) // 4):
        answer = parse(chat_format, [whole[:at]], cut=True)
        assert at % 4 or answer == parse(chat_format, list(whole[:at]), cut=True)
        assert answer.text.rstrip() == text, f"{whole[:at]!r} shows {answer.text!r}"
        assert answer.reasoning in ("", "Hm.")
        assert [name for name, _ in calls][: len(answer.calls)] == [name for name, _ in answer.calls]


@all_formats
def test_nothing_of_a_cut_call_is_text(chat_format: ChatFormat) -> None:
    for kind in ("hard text", "no arguments", "nested", "two"):
        assert_nothing_of_a_cut_call_is_text(chat_format, "", CALLS[kind])


@thinking_formats
def test_nothing_of_a_call_cut_after_a_thought_is_text(chat_format: ChatFormat) -> None:
    assert chat_format.thought is not None
    thought = chat_format.thought
    before = f"{thought.opens[0]}Hm.{thought.closes[0]}{chat_format.calls.after_thought}"
    assert_nothing_of_a_cut_call_is_text(chat_format, before, CALLS["two"])


@pytest.mark.parametrize(
    "chat_format",
    [chat_format for chat_format in FORMATS if not chat_format.calls.at_start],
    ids=lambda chat_format: chat_format.name,
)
def test_nothing_of_a_call_cut_after_text_is_text(chat_format: ChatFormat) -> None:
    calls = chat_format.calls
    ends = calls.separator if chat_format.text_opens and not calls.opening else ""
    before = f"{chat_format.text_opens}Let me look.{ends}"
    assert_nothing_of_a_cut_call_is_text(chat_format, before, CALLS["one"], "Let me look.")


@thinking_formats
def test_a_cut_marker_of_a_thought_is_not_shown(chat_format: ChatFormat) -> None:
    assert chat_format.thought is not None
    whole = f"{chat_format.thought.opens[0]}Hm.{chat_format.thought.closes[0]}"
    for at in range(len(whole)):
        answer = parse(chat_format, [whole[:at]], cut=True)
        assert answer == parse(chat_format, list(whole[:at]), cut=True)
        assert answer.text == ""
        assert "Hm.".startswith(answer.reasoning.strip())


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ('{"name": "Bo', '{"name": "Bo'), ('{"name": "get_w', ""), ('{"na', ""), ('{"age', '{"age'),
        ("[get_", ""), ("[Os", "[Os"), ('{"name": "get_weather", "parame', ""), ("", ""), ("Hello", "Hello"),
        ('{"name": "get_weather", "age', '{"name": "get_weather", "age'), ("[now.ca", ""), ("[now.x", "[now.x"),
        ("[now(), Os", ", Os"),
    ],
)  # fmt: skip
def test_a_cut_text_without_a_marker_is_a_call_only_if_it_may_become_one(answer: str, text: str) -> None:
    assert parse(LLAMA3, [answer], cut=True).text.strip() == text
    assert parse(LLAMA3, list(answer), cut=True).text.strip() == text


@all_formats
def test_text_that_ends_by_itself_keeps_what_looks_like_a_marker(chat_format: ChatFormat) -> None:
    for trigger in chat_format.calls.triggers:
        text = f"{chat_format.text_opens}It is{trigger[:1]}"
        assert parse(chat_format, [text]).text == f"It is{trigger[:1]}"


@thinking_formats
def test_a_thought_before_a_call(chat_format: ChatFormat) -> None:
    assert chat_format.thought is not None
    thought = chat_format.thought
    text = f"{thought.opens[0]}\nHm, <a> or b?\n\n{thought.closes[0]}{chat_format.calls.after_thought}"
    answer = parse_everywhere(chat_format, text + written(chat_format, CALLS["one"]))
    assert answer.reasoning == "Hm, <a> or b?"
    assert answer.values() == CALLS["one"]
    assert answer.text == ""


@thinking_formats
def test_a_thought_that_the_prompt_opened(chat_format: ChatFormat) -> None:
    assert chat_format.thought is not None
    prompt = "<user>Hi" + chat_format.thought.opens[0] + "\n"
    assert chat_format.prompt_opens_thought(prompt)
    assert not chat_format.prompt_opens_thought("<user>Hi")
    text = f"Hm.\n{chat_format.thought.closes[0]}{chat_format.calls.after_thought}" + written(
        chat_format, CALLS["one"]
    )
    answer = parse_everywhere(chat_format, text, starts_in_thought=True)
    assert (answer.text, answer.reasoning, answer.values()) == ("", "Hm.", CALLS["one"])


@all_formats
def test_a_truncated_call_gives_a_prefix_of_the_call(chat_format: ChatFormat) -> None:
    """Every beginning of a call is either text or the beginning of the call; nothing fails, nothing is invented."""
    text = written(chat_format, CALLS["one"])
    whole = parse_everywhere(chat_format, text).calls[0]
    for end in range(len(text)):
        for found in parse(chat_format, [text[:end]]).calls:
            assert found.name == whole.name
            assert whole.arguments.startswith(found.arguments)


@all_formats
def test_without_tools_nothing_is_a_call(chat_format: ChatFormat) -> None:
    assert parse_everywhere(chat_format, written(chat_format, CALLS["one"]), tools=()).calls == ()


@all_formats
def test_plain_text_is_text(chat_format: ChatFormat) -> None:
    text = ' Dear <b>all</b>,\n\n{"a": [1]} `x < y` [TOOL] <tool>\n\nBye. \n'
    assert parse_everywhere(chat_format, chat_format.text_opens + text).text == text


@thinking_formats
def test_text_after_a_thought(chat_format: ChatFormat) -> None:
    assert chat_format.thought is not None
    text = f"Hm.{chat_format.thought.closes[0]}{chat_format.calls.after_thought}{chat_format.text_opens}"
    answer = parse_everywhere(chat_format, text + '{"a": 1}', starts_in_thought=True)
    assert answer == Answer('{"a": 1}', "Hm.", (), ("reasoning", "text"))


@pytest.mark.parametrize(
    ("chat_format", "trigger"),
    [(chat_format, trigger) for chat_format in FORMATS for trigger in chat_format.calls.triggers],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_the_layout_completes_a_call_after_each_trigger(chat_format: ChatFormat, trigger: str) -> None:
    before = " to=now<|message|>" if chat_format.name == "muse-glimmer" else ""
    layout = replace(
        chat_format.calls, opening="", call=(before + trigger, *chat_format.calls.after(trigger))
    )
    answer = parse_everywhere(chat_format, write_calls(layout, [call(*CALLS["one"][0])]))
    assert answer.values() == CALLS["one"]
    assert answer.text == ""


@all_formats
@pytest.mark.parametrize("split_thoughts", [True, False])
def test_no_control_token_is_shown(chat_format: ChatFormat, split_thoughts: bool) -> None:
    """Wherever a model writes one: alone, in a text or a thought, or before what is a call none the less."""
    calls = written(chat_format, CALLS["one"])
    thought = chat_format.thought
    marks = () if thought is None or split_thoughts else (*thought.opens, *thought.closes)
    for token in chat_format.control_tokens:
        if any(token in mark for mark in marks):
            continue
        text = parse_everywhere(
            chat_format, f"{chat_format.text_opens}Ok. {token}Hi.", split_thoughts=split_thoughts
        )
        assert token not in text.text + text.reasoning
        assert "Ok." in text.text
        if token not in chat_format.calls.opening + str(chat_format.calls.call):
            after = parse(chat_format, [calls + token], split_thoughts=split_thoughts)
            assert (after.values(), after.text) == (CALLS["one"], "")
    assert "[ARGS]" in parse(chat_format, [f"{chat_format.text_opens}Usage: f [ARGS]"]).text


@all_formats
def test_long_arguments_stream(chat_format: ChatFormat) -> None:
    """A long text argument is passed on long before it ends."""
    text = written(chat_format, [("get_weather", {"city": "x" * 400})])
    parser = StreamParser(chat_format, lambda name, own: "id", tools=TOOLS)
    deltas = parser.feed(text[: text.index("xx") + 200])
    assert isinstance(deltas[-1], ToolCallDelta)
    assert deltas[-1].arguments.count("x") == 200


def test_python_arguments_use_python_or_json_words() -> None:
    chat_format = replace(LFM2, calls=replace(LFM2.calls, arguments=PythonArguments()))
    assert "(k=true, n=null)" in write_calls(LFM2.calls, [call("f", {"k": True, "n": None})])
    assert "(k=True, n=None)" in write_calls(chat_format.calls, [call("f", {"k": True, "n": None})])
