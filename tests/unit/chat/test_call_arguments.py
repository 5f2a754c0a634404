"""Arguments of earlier calls, as models, limits and clients leave them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.chat.call_arguments import arguments_text, object_arguments, read_arguments

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=4)


CASES: list[tuple[str, dict[str, Any]]] = [
    ("", {}),
    (" {} ", {}),
    ('{"a": null}', {"a": None}),
    ("null", {}),
    ("[]", {}),
    ('[{"a": 1}]', {}),
    ('"x"', {}),
    ("5", {}),
    ("read the file", {}),
    ("{a: 1}", {"a": 1}),
    ("{'a': 1}", {"a": 1}),
    ("{'a': \"it's\", 'b': None, c: [True, x]}", {"a": "it's", "b": None, "c": [True, "x"]}),
    ('{"a": 1, \'b\': "x", "c": "cu', {"a": 1, "b": "x"}),
    ("{'a': 'b' 'c': 1}", {"a": "b"}),
    ("{'a': 'cut", {}),
    ('{"a": 1,}', {"a": 1}),
    ('{"a": [1,, 2]}', {"a": [1]}),
    ('{"a": 1 "b": 2}', {"a": 1}),
    ('{"a": 1]', {"a": 1}),
    ('{"a": 1}{"a": 2}', {"a": 1}),
    ('{"a": 1} and more', {"a": 1}),
    ('```json\n{"a": 1}\n```', {"a": 1}),
    ('```\n{"a": 1, "b', {"a": 1}),
    ('{"a": "line\nline"}', {"a": "line\nline"}),
    ('{"a": "line\nline", "b', {"a": "line\nline"}),
    ('{"path": "a.txt"', {"path": "a.txt"}),
    ('{"path": "a.t', {}),
    ('{"path": "a\\', {}),
    ('{"n": 1, "m": 12', {"n": 1}),
    ('{"n": -1.5e', {}),
    ('{"a": true', {"a": True}),
    ('{"a": tru', {}),
    ('{"o": {"a": 1, "b": [1, 2, {"c": "x", "d', {"o": {"a": 1, "b": [1, 2, {"c": "x"}]}}),
    ('{"a": "\\ud83d"}', {"a": "\ufffd"}),
    ('{"a": "\\ud83d\\ude00", "b', {"a": "\U0001f600"}),
    ('{"a": ' * 100_000, {}),
    ('{"a": ' * 101 + "1" + "}" * 101, {}),
    ('{"a": "' + "{" * 200 + '"}', {"a": "{" * 200}),
    ('{"a": [' + ", ".join(["{}"] * 200) + "]}", {"a": [{}] * 200}),
    ("[" * 100_000, {}),
    ('{"a": ' + "9" * 100_000 + "}", {}),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_what_is_whole_at_the_beginning_is_kept(text: str, expected: dict[str, Any]) -> None:
    values = object_arguments(text)
    assert values == expected
    assert json.loads(arguments_text(text, values)) == expected


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        *((text, True) for text in ("", " null ", "{}", ' {"a": 1} ', '{"a": "line\nline"}')),
        *(
            (text, False)
            for text in ('{"a": 1', "[]", "5", "read the file", '{"a": 1}{"b": 2}', '{"a": ' * 200)
        ),
        *((text, True) for text in ("{'a': None}", '{"a": 1,}', '```json\n{"a": 1}\n```')),
    ],
)
def test_what_holds_more_than_is_shown_is_told_from_what_does_not(text: str, whole: bool) -> None:
    assert read_arguments(text).whole == whole


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("end", ["}", ', "b": 1'])
def test_a_number_that_json_does_not_have_is_a_word(word: str, end: str) -> None:
    assert object_arguments(f'{{"a": {word} {end}')["a"] == word


def test_the_text_of_an_object_stays_as_it_is() -> None:
    assert arguments_text('{"a":1.50}', {"a": 1.5}) == '{"a":1.50}'


@given(OBJECTS, st.integers(0))
def test_a_call_that_is_cut_anywhere_keeps_members_of_the_whole_one(values: dict[str, Any], at: int) -> None:
    text = json.dumps(values)
    assert object_arguments(text) == values
    cut = object_arguments(text[: at % (len(text) + 1)])
    assert list(cut) == list(values)[: len(cut)]
    whole = list(cut)[:-1]
    assert {name: cut[name] for name in whole} == {name: values[name] for name in whole}
