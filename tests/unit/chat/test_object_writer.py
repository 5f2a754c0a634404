"""ObjectWriter: the members of an object, each name once."""

from __future__ import annotations

import pytest

from jan_serve.chat.object_writer import ObjectWriter


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
