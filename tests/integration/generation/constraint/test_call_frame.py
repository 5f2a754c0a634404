"""What every format writes around the arguments of calls, with marks in the holes."""

from __future__ import annotations

import re
from random import Random

import pytest

from jan_serve.chat.chat_format import ChatFormat
from jan_serve.chat.detect import FORMATS
from jan_serve.constraint.ast import Grammar, Literal
from jan_serve.generation.constraint.call_frame import call_frame, frame_trees, tool_hole
from tests.unit.constraint.recognizer import matches
from tests.unit.constraint.sampling import Sampler

NAMES = ("alpha", "beta")
MARKS = ("«of alpha»", "«of beta»")
ANSWER = "«answer»"
SAMPLES = 30

forms = pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)


def form_of(name: str) -> ChatFormat:
    return next(form for form in FORMATS if form.name == name)


def marked_trees(form: ChatFormat, *, parallel: bool = True, answer: bool = False) -> list[Grammar]:
    """The frame's grammars with a mark in each hole."""
    holes = {tool_hole(number): Literal(mark) for number, mark in enumerate(MARKS)}
    if answer:
        holes["answer"] = Literal(ANSWER)
    trees = frame_trees(form, NAMES, parallel=parallel, answer=answer)
    return [Grammar({**tree.rules, **holes}, tree.root) for tree in trees]


def texts_of(grammar: Grammar, seed: int = 1) -> list[str]:
    sampler, random = Sampler(grammar), Random(seed)
    return [sampler.text(random) for _ in range(SAMPLES)]


def calls_of(form: ChatFormat, grammar: Grammar) -> list[str]:
    """Texts that call a tool."""
    declined = form.calls.no_call
    return [text for text in texts_of(grammar) if not declined or declined not in text]


def check_calls(text: str) -> int:
    """The number of calls. Each has the arguments of the tool that it names, once."""
    calls = re.findall(r"([^«]*)«of (alpha|beta)»", text)
    for before, name in calls:
        assert name in before and ({*NAMES} - {name}).pop() not in before, text
    return len(calls)


@forms
def test_what_follows_a_trigger_begins_with_a_name_of_its_own(form: ChatFormat) -> None:
    _, *triggered = marked_trees(form)
    assert len(triggered) == len(form.calls.triggers)
    for trigger, tree in zip(form.calls.triggers, triggered, strict=True):
        # A trigger may be the beginning of a name's text: the name is in neither of them twice.
        assert all(check_calls(trigger + text) for text in calls_of(form, tree))


@forms
def test_an_answer_takes_the_place_of_the_first_call(form: ChatFormat) -> None:
    whole, *triggered = marked_trees(form, answer=True)
    assert matches(whole, form.text_opens + ANSWER)
    assert not matches(whole, form.text_opens + ANSWER + ANSWER)
    assert not matches(marked_trees(form)[0], form.text_opens + ANSWER)
    assert all(ANSWER not in text for tree in triggered for text in texts_of(tree))


def test_control_tokens_are_not_spelled() -> None:
    frame = call_frame(form_of("gpt-oss"), NAMES, parallel=False, answer=False)
    assert {special.text for special in frame.whole.specials} >= {
        "<|channel|>",
        "<|message|>",
        "<|constrain|>",
    }
    assert not frame.whole.definitions.keys() & {special.rule for special in frame.whole.specials}


def test_only_hermes_calls_may_leave_line_breaks_out() -> None:
    """Models of this format differ in them; everywhere else the layout's breaks are part of it."""
    call = '<tool_call>{}{{"name": "alpha", "arguments": «of alpha»}}{}</tool_call>'
    whole = marked_trees(form_of("hermes"))[0]
    for after in ("", "\n"):
        for before in ("", "\n"):
            for between in ("", "\n"):
                assert matches(whole, call.format(after, before) + between + call.format(before, after))
    assert not matches(whole, call.format(" ", ""))
    qwen = marked_trees(form_of("qwen3-coder"))[0]
    strict = "<tool_call>\n<function=alpha>\n«of alpha»</function>\n</tool_call>"
    assert matches(qwen, strict)
    assert not matches(qwen, strict.replace("\n", ""))


def test_command_r_may_say_that_it_calls_no_tool_unless_it_has_to_call_one() -> None:
    whole, triggered = marked_trees(form_of("command-r"))
    declined = '    {\n        "tool_name": "directly-answer",\n        "parameters": {}\n    }\n]```'
    assert matches(triggered, "[\n" + declined)
    assert not matches(whole, "Action:\n```json\n[\n" + declined)
