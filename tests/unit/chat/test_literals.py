"""Python and Gemma literals become JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.chat.literals import GEMMA, MAX_DEPTH, literal_to_json

PYTHON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(PYTHON_VALUES, max_size=2))
def test_python_literals(value: list[object]) -> None:
    converted = literal_to_json(repr(value))
    assert converted is not None
    assert json.loads(converted) == value


@given(st.dictionaries(st.text(), PYTHON_VALUES, max_size=2))
def test_json_is_left_as_it_is(value: dict[str, object]) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert literal_to_json(text) == text


@given(st.lists(st.tuples(st.sampled_from("abc'"), PYTHON_VALUES), max_size=5))
def test_the_first_value_of_a_name_counts(members: list[tuple[str, object]]) -> None:
    converted = literal_to_json("{" + ", ".join(f"{name!r}: {value!r}" for name, value in members) + "}")
    assert converted is not None
    first = dict(reversed(members))
    expected = [(name, first[name]) for name in dict(members)]
    assert list(json.loads(converted).items()) == expected
    assert json.dumps(json.loads(converted)) == json.dumps(dict(expected))
    assert len(json.loads(converted, object_pairs_hook=list)) == len(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(1, 2,)", "[1, 2]"),
        ("{'a': (), }", '{"a": []}'),
        (r"['\x41\u00e9\U0001F600\n\q\'']", r"""["Aé😀\n\\q'"]"""),
        (r"['\ud83d\xzz']", r'["\ud83d\\xzz"]'),
        ("[a, -1.5e3, 007, None, true]", '["a", -1.5e3, "007", null, true]'),
        ("{a: 1, 'b': {}}", '{"a": 1, "b": {}}'),
        (r"""{a: 1, 'a': 2, '\x61': 3, "b": 4}""", '{"a": 1, "b": 4}'),
    ],
)
def test_spellings_are_normalised(text: str, expected: str) -> None:
    assert literal_to_json(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1",
        "[1 2]",
        "{'a' 1}",
        "{'a': }",
        "['a]",
        "[1] x",
        "['\\",
        "['\\u12",
        "[f(1)]",
        "[" * (MAX_DEPTH + 2),
    ],
)
def test_malformed_literals_give_none(text: str) -> None:
    assert literal_to_json(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", "{}"),
        (
            '{a:<|"|>x "y" \\ {<|"|>,b:[1,-2.5],c:{d:true}}',
            '{"a": "x \\"y\\" \\\\ {", "b": [1, -2.5], "c": {"d": true}}',
        ),
        ('{<|"|>a b<|"|>:null}', '{"a b": null}'),
        ('{a:{b:1,b:2},<|"|>a<|"|>:3,c:[{d:4,d:5}]}', '{"a": {"b": 1}, "c": [{"d": 4}]}'),
    ],
)
def test_gemma_literals(text: str, expected: str) -> None:
    assert literal_to_json(text, GEMMA) == expected
