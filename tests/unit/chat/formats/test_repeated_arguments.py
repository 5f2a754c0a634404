"""Where arguments are no JSON, a name that a model writes again is among the arguments once, with its first value.

The layouts write the calls. A name that ends with `MARK` is written without it, so it repeats another one.
"""

from __future__ import annotations

import json
from typing import Any, Final, cast

import pytest
from msgspec.structs import replace

from jan_serve.chat.call_layout import JsonArguments, PythonArguments
from jan_serve.chat.chat_format import ChatFormat
from jan_serve.chat.detect import FORMATS
from jan_serve.chat.formats.python_calls import LFM2, LLAMA3
from jan_serve.chat.tools_as_text import write_calls
from tests.support.drawn_grid import some
from tests.unit.chat.formats.answers import Call, call, parse, parse_everywhere

pytestmark = pytest.mark.drawn

MARK: Final = "_AGAIN"
HARD_TEXT: Final = "Oslo \"N\" \\ {x}: </a> é\u2028 [1], 'q' & <b>\nline"

# Llama 3 reads Python too, and its layout writes JSON.
_PYTHON: Final = replace(LFM2.calls, opening="[", closing="]", arguments=PythonArguments())
NOTATIONS: Final = [
    *(chat_format for chat_format in FORMATS if not isinstance(chat_format.calls.arguments, JsonArguments)),
    replace(LLAMA3, name="llama3 in Python", calls=_PYTHON),
]
all_notations = pytest.mark.parametrize("chat_format", NOTATIONS, ids=lambda chat_format: chat_format.name)

Calls = list[tuple[str, dict[str, Any]]]
CALLS: Final[dict[str, Calls]] = {
    "the same text": [("get_weather", {"city": "Oslo", f"city{MARK}": "Oslo"})],
    "another text": [("get_weather", {"city": "Oslo", f"city{MARK}": "Rome"})],
    "hard texts": [("get_weather", {"city": HARD_TEXT, f"city{MARK}": f"{HARD_TEXT}!", "days": 2})],
    "an empty text": [("get_weather", {"city": "", f"city{MARK}": "Oslo"})],
    "a text after an empty one": [("get_weather", {"city": "Oslo", f"city{MARK}": ""})],
    "the same number": [("get_weather", {"days": 2, f"days{MARK}": 2})],
    "another number": [("get_weather", {"days": 2, f"days{MARK}": 30})],
    "another type": [("get_weather", {"days": 2, f"days{MARK}": "two", "city": "Oslo"})],
    "words": [("add", {"opts": {"a": None, f"a{MARK}": True, "b": False, f"b{MARK}": None}, "values": [1]})],
    "the first": [("get_weather", {"city": "Oslo", f"city{MARK}": "Rome", "days": 2})],
    "one in the middle": [("get_weather", {"city": "Oslo", "days": 2, f"days{MARK}": 3, "unit": "C"})],
    "the last": [("get_weather", {"city": "Oslo", "days": 2, f"city{MARK}": "Rome"})],
    "each": [("get_weather", {"city": "Oslo", "days": 2, f"days{MARK}": 3, f"city{MARK}": "Rome"})],
    "one three times": [
        ("get_weather", {"city": "Oslo", f"city{MARK}": "Rome", "days": 2, f"city{MARK}{MARK}": "Lima"})
    ],
    "an array": [("add", {"values": [1, 2.5], f"values{MARK}": [3], "opts": {}})],
    "an object": [("add", {"opts": {"a": 1}, f"opts{MARK}": {"b": [2], "c": {"d": 1}}, "values": [1]})],
    "within an object": [("add", {"opts": {"a": 1, f"a{MARK}": 2, "b": "x"}, "values": [1]})],
    "deeper": [("add", {"opts": {"o": {"a": "x", f"a{MARK}": "y"}, f"o{MARK}": {"a": "z"}}})],
    "within an array": [("add", {"opts": {"list": [{"a": 1, f"a{MARK}": 2}, {"a": 3, "b": 4}]}})],
    "within a repeated one": [("add", {"opts": {"a": 1}, f"opts{MARK}": {"a": 2, f"a{MARK}": 3}})],
    "none: objects within each other": [("add", {"opts": {"opts": {"values": 1}, "values": 2}, "values": [3]})],
    "two calls": [
        ("get_weather", {"city": "Oslo", f"city{MARK}": "Rome"}),
        ("get_weather", {"city": "Lima", "days": 1, f"days{MARK}": 2}),
    ],
}  # fmt: skip


def written(chat_format: ChatFormat, calls: Calls) -> str:
    """The calls as a model writes them."""
    made = [call(name, arguments, f"calls{at:04}") for at, (name, arguments) in enumerate(calls)]
    return write_calls(chat_format.calls, made).replace(MARK, "")


def once(value: Any) -> Any:
    """The value without the names that repeat another one."""
    if isinstance(value, dict):
        members = cast(dict[str, Any], value).items()
        return {name: once(member) for name, member in members if not name.endswith(MARK)}
    return [once(item) for item in cast(list[Any], value)] if isinstance(value, list) else value


def expected(calls: Calls) -> tuple[Call, ...]:
    return tuple(Call(name, json.dumps(once(arguments), ensure_ascii=False)) for name, arguments in calls)


CUT_EVERYWHERE: Final = ("hard texts", "each", "deeper", "two calls")


@all_notations
def test_the_first_value_counts(chat_format: ChatFormat) -> None:
    for kind, calls in CALLS.items():
        text = written(chat_format, calls)
        if kind in CUT_EVERYWHERE:
            answers = [parse_everywhere(chat_format, text)]
        else:
            answers = [parse(chat_format, [text]), parse(chat_format, list(text))]
        for answer in answers:
            assert (kind, answer.calls) == (kind, expected(calls))
            assert (answer.text, answer.reasoning) == ("", "")


@all_notations
@pytest.mark.parametrize("kind", ["each", "one three times", "deeper", "two calls"])
def test_a_call_that_is_cut_off_has_a_beginning_of_the_arguments(chat_format: ChatFormat, kind: str) -> None:
    calls = CALLS[kind]
    text = written(chat_format, calls)
    for end in some(range(len(text)), len(text) // 3):
        for read, whole in zip(parse(chat_format, [text[:end]]).calls, expected(calls), strict=False):
            assert read.name == whole.name
            assert whole.arguments.startswith(read.arguments), f"cut as {text[:end]}"


@all_notations
@pytest.mark.parametrize(
    ("arguments", "before"),
    [
        ({"city": "Oslo", f"city{MARK}": "Reykjavik", "days": 2}, '{"city": "Oslo"'),
        ({"city": "Oslo", "days": 2, f"city{MARK}": "Reykjavik"}, '{"city": "Oslo", "days": 2'),
    ],
)
def test_a_call_that_is_cut_off_in_a_repeated_argument(
    chat_format: ChatFormat, arguments: dict[str, Any], before: str
) -> None:
    text = written(chat_format, [("get_weather", arguments)])
    cut = text[: text.index("Reykjavik") + 4]
    assert parse_everywhere(chat_format, cut).calls == (Call("get_weather", before),)
