"""JSON inside a stream, and notations close to it, which become JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.chat.json_stream import (
    GEMMA,
    MAX_DEPTH,
    MAX_LITERAL_DEPTH,
    ObjectWriter,
    copy_json,
    json_escaped,
    json_string_value,
    literal_to_json,
    read_json_string,
)
from jan_serve.chat.text_stream import Steps, TextStream, discard

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def run(text: str, cut: int) -> tuple[bool, str, str]:
    """Whether a value was whole, its text, and what follows; the text comes in two pieces."""
    stream, passed, rest = TextStream(), list[str](), list[str]()

    def read() -> Steps[bool]:
        whole = yield from copy_json(stream, passed.append)
        while not stream.at_end:
            rest.append((yield from stream.take(1)))
        return whole

    steps = read()
    for piece in (text[:cut], text[cut:]):
        stream.feed(piece)
        next(steps)
    stream.close()
    with pytest.raises(StopIteration) as result:
        next(steps)
    return bool(result.value.value), "".join(passed), "".join(rest)


@given(VALUES, st.booleans(), st.integers(0, 200))
def test_the_end_of_a_value_is_found(value: object, ascii_only: bool, cut: int) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert run(text + " ] more", cut) == (True, text, " ] more")


@pytest.mark.parametrize(
    ("text", "passed", "rest"),
    [
        ("", "", ""),
        ("{", "{", ""),
        ('{"a": "b', '{"a": "b', ""),
        ('"a\\', '"a\\', ""),
        ("[1, {]", "[1, {", "]"),
        ("}", "", "}"),
        ('{"a": <b>}', '{"a": ', "<b>}"),
        ("[" * (MAX_DEPTH + 1), "[" * MAX_DEPTH, "["),
    ],
)
def test_a_malformed_value_stops_at_the_error(text: str, passed: str, rest: str) -> None:
    for cut in range(min(len(text), 10) + 1):
        assert run(text, cut) == (False, passed, rest)


@pytest.mark.parametrize("text", ['{"a": tru}', "[1 2,,]", "{a: 1}"])
def test_errors_with_balanced_brackets_pass(text: str) -> None:
    assert run(text + "x", 2) == (True, text, "x")


@pytest.mark.parametrize(
    ("text", "value"), [('"a\\n"', "a\n"), ('"a\nb"', "a\nb"), ("a", None), ('"a', None), ("1", None)]
)
def test_string_values(text: str, value: str | None) -> None:
    stream = TextStream()
    stream.feed(text)
    stream.close()
    with pytest.raises(StopIteration) as result:
        next(read_json_string(stream))
    assert result.value.value == value
    assert json_string_value(text) == value


@given(st.text(), st.text())
def test_escaping_in_pieces_gives_the_same(one: str, two: str) -> None:
    assert json_escaped(one) + json_escaped(two) == json_escaped(one + two)
    assert json.loads(f'"{json_escaped(one)}"') == one


def test_discard_takes_anything() -> None:
    stream = TextStream()
    stream.feed("[1] ")
    stream.close()
    with pytest.raises(StopIteration) as result:
        next(copy_json(stream, discard))
    assert result.value.value is True


@pytest.mark.parametrize(
    ("members", "written"),
    [
        ([], ""),
        ([('"a"', "1")], '"a": 1'),
        ([('"a"', "1"), ('"b"', "2")], '"a": 1, "b": 2'),
        ([('"a"', "1"), ('"a"', "2")], '"a": 1'),
        ([('"a"', "1"), ('"a"', "2"), ('"b"', "3"), ('"a"', "4")], '"a": 1, "b": 3'),
        ([('""', "1"), ('""', "2"), ('"b"', "3")], '"": 1, "b": 3'),
        ([('"\\ud83d\\ude00"', "1"), ('"😀"', "2")], '"\\ud83d\\ude00": 1'),
        ([('"\\ud83d"', "1"), ('"\\ud83d"', "2")], '"\\ud83d": 1'),
        ([('"a"', "1"), ('"A"', "2"), ('"a "', "3")], '"a": 1, "A": 2, "a ": 3'),
    ],
)
def test_a_name_is_written_once_with_its_first_value(members: list[tuple[str, str]], written: str) -> None:
    pieces: list[str] = []
    writer = ObjectWriter(pieces.append)
    for key, value in members:
        sink = writer.begin(key)
        sink(": ")
        sink(value)
    assert "".join(pieces) == written


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
        "[" * (MAX_LITERAL_DEPTH + 2),
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
