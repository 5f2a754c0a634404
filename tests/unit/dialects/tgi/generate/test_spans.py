"""Tokens are found in the text that they were made of, whatever the vocabulary did to its spaces."""

from __future__ import annotations

import pytest

from jan_serve.dialects.tgi.generate.routes import spans

CASES: dict[str, tuple[str, list[bytes], list[tuple[int, int]]]] = {
    "bytes": ("é!", [b"\xc3", b"\xa9", b"!"], [(0, 1), (1, 2), (2, 3)]),
    "added": ("ab", [b"<s>", b"ab", b"</s>"], [(0, 0), (0, 2), (0, 0)]),
    "special tokens of the text": ("<s>a</s>", [b"<s>", b"a", b"</s>"], [(0, 3), (3, 4), (4, 8)]),
    "a space that SentencePiece puts first": (
        "Hello world",
        [b"<s>", b" Hello", b" world"],
        [(0, 0), (0, 5), (5, 11)],
    ),
    "spaces first": ("  x", [b"<s>", b"  ", b" x"], [(0, 0), (0, 2), (2, 3)]),
    "a token of that space alone": ("\na", [b" ", b"\n", b"a"], [(0, 0), (0, 1), (1, 2)]),
    "behind a special token": ("a</s> b", [b" a", b"</s>", b" ", b" b"], [(0, 1), (1, 5), (5, 6), (6, 7)]),
    "spaces that a special token takes": ("<|u|>\n hi", [b"<|u|>", b"hi"], [(0, 5), (7, 9)]),
    "nothing": ("", [b"<s>"], [(0, 0)]),
}


@pytest.mark.parametrize("case", CASES)
def test_spans(case: str) -> None:
    text, pieces, expected = CASES[case]
    found = spans(text, range(len(pieces)), pieces)
    assert [(each["start"], each["stop"]) for each in found] == expected
    data = text.encode()
    assert [each["text"] for each in found] == [
        data[start:end].decode("utf-8", "replace") for start, end in expected
    ]
