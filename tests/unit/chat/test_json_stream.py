"""The end of JSON values in a stream, and malformed ones."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.chat.json_stream import (
    MAX_DEPTH,
    ObjectWriter,
    copy_json,
    json_escaped,
    json_string_value,
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
