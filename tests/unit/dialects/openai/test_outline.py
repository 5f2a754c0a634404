"""Whom `POST /tokenize` is for, by its body."""

from __future__ import annotations

import pytest

from jan_serve.dialects.openai.outline import body_path, is_llama_body


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"content": "a"}', True),
        (b'{"content": 5, "with_pieces": true}', True),
        (b'{"inputs": "a"}', False),
        (b'{"inputs": "a", "content": "b"}', False),
        (b'{"nested": {"content": "a"}}', False),
        (b"{}", False),
        (b'["content"]', False),
        (b'{"content": ', False),
        (b"\xff", False),
        (b"", False),
        (b"[" * 100_000, False),
    ],
)
def test_members_decide(body: bytes, expected: bool) -> None:
    assert is_llama_body(body) is expected
    assert body_path("/tokenize", body) == ("/llama-server/tokenize" if expected else "/tokenize")
    assert body_path("/other", body) == "/other"
