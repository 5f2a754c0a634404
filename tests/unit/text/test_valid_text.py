"""Text that is no text yet: bytes, halves of surrogate pairs, and base64."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.text.valid_text import Utf8Decoder, base64_bytes, valid_text, without_lone_surrogates

PIECES = st.sampled_from(
    [r"\ud83d", r"\ude00", r"\uDBFF", r"\udc00", r"\\", r"\n", r"\u0041", "ud83d", "x", "é"]
)


@given(st.lists(PIECES, max_size=12))
def test_the_text_is_what_a_lenient_reader_reads(pieces: list[str]) -> None:
    text = '"' + "".join(pieces) + '"'
    repaired = without_lone_surrogates(text.encode())
    assert len(repaired) == len(text.encode())
    assert msgspec.json.decode(repaired) == valid_text(json.loads(text))


@pytest.mark.parametrize(
    ("text", "valid"),
    [("a", "a"), ("é", "é"), ("\ud83d", "\ufffd"), ("\ud83d\ude00", "😀"), ("\udc00x", "\ufffdx")],
)
def test_a_text_becomes_valid(text: str, valid: str) -> None:
    assert valid_text(text) == valid


@pytest.mark.parametrize("piece", [b"\\", b"\\ud83d", b"\\ud83d\\ude00", b"\\\\ud83d", b"\\n", b"\\udc00"])
def test_hostile_texts_take_linear_time(piece: bytes) -> None:
    def seconds(size: int) -> float:
        start = time.process_time()
        without_lone_surrogates(piece * (size // len(piece)))
        return time.process_time() - start

    assert seconds(1 << 22) < 16 * seconds(1 << 20) + 0.1


# Whole characters of every length, and what is not UTF-8, by the Unicode standard's table 3-7 and section 3.9.
CASES: dict[str, bytes] = {
    "empty": b"",
    "ascii": b"plain text\n",
    "two bytes": "é ü ß".encode(),
    "three bytes": "模型 € ﷽".encode(),
    "four bytes": "😀👩\u200d👧".encode(),
    "mixed": "a😀é模z".encode(),
    "byte order mark": b"\xef\xbb\xbfx",
    "lone continuation": b"a\x80b",
    "two lone continuations": b"\x80\xbf",
    "cut two-byte character": b"a\xc3",
    "cut three-byte character": b"a\xe6\xa8",
    "cut four-byte character": b"a\xf0\x9f\x98",
    "cut character then ascii": b"\xf0\x9f\x98!\xe6\xa8!\xc3!",
    "cut character then another": b"\xe6\xa8\xf0\x9f\x98\x80",
    "overlong": b"\xc0\xaf \xe0\x80\xaf \xf0\x80\x80\xaf",
    "surrogate": b"\xed\xa0\x80 \xed\xbf\xbf",
    "above U+10FFFF": b"\xf4\x90\x80\x80 \xf5\x80\x80\x80",
    "never valid": b"\xfe\xff\xc1",
    "nul": b"a\x00b",
}


def every_split(data: bytes) -> Iterator[list[bytes]]:
    """All ways to cut `data` into one, two or three pieces, and byte by byte."""
    for i in range(len(data) + 1):
        for j in range(i, len(data) + 1):
            yield [data[:i], data[i:j], data[j:]]
    yield [data[i : i + 1] for i in range(len(data))]


def fold(pieces: list[bytes]) -> str:
    decoder = Utf8Decoder()
    return "".join(decoder.feed(piece) for piece in pieces) + decoder.finish()


@pytest.mark.parametrize("data", CASES.values(), ids=CASES.keys())
def test_text_does_not_depend_on_where_the_bytes_are_cut(data: bytes) -> None:
    whole = data.decode("utf-8", "replace")
    for pieces in every_split(data):
        assert fold(pieces) == whole, pieces


@given(st.lists(st.binary(max_size=6), max_size=6))
def test_any_bytes_in_any_pieces(pieces: list[bytes]) -> None:
    assert fold(pieces) == b"".join(pieces).decode("utf-8", "replace")


@pytest.mark.parametrize("character", ["é", "模", "😀"])
def test_an_unfinished_character_is_held_back_and_nothing_else(character: str) -> None:
    data = character.encode()
    for cut in range(1, len(data)):
        decoder = Utf8Decoder()
        assert decoder.feed(b"ab" + data[:cut]) == "ab"
        assert decoder.pending
        assert decoder.feed(data[cut:] + b"c") == character + "c"
        assert not decoder.pending


def test_a_character_that_was_cut_off_is_left_out() -> None:
    decoder = Utf8Decoder()
    assert decoder.feed("aé".encode()[:2]) == "a"
    assert decoder.finish(cut_off=True) == ""


DATA = bytes(range(255)) * 19
LINES = base64.encodebytes(DATA).decode().replace("\n", "\r\n")


def test_line_ends_do_not_count_for_the_limit() -> None:
    assert base64_bytes(LINES, len(DATA)) == DATA


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (LINES * 2, f"has more than {len(DATA)} bytes, the limit"),
        ("QQ=Q", "is not encoded as base64"),
        ("QQ\u00e4=", "is not encoded as base64"),
    ],
)
def test_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        base64_bytes(text, len(DATA))
