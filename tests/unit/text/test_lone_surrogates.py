from __future__ import annotations

import json
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.text.lone_surrogates import valid_text, without_lone_surrogates

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
