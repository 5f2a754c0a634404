from __future__ import annotations

import base64

import pytest

from jan_serve.text.valid_text import base64_bytes

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
