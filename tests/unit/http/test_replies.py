from __future__ import annotations

import json

import pytest

from jan_serve.http.replies import json_bytes, json_reply


@pytest.mark.parametrize(
    "text", ["plain", 'quote " \\', "é模😀", "a\u2028b\u2029c\u0085d", "\u2014 dash", "\r\n\0\x1f\x0b\x1c"]
)
def test_one_line_for_every_reader(text: str) -> None:
    encoded = json_bytes({"a": text})
    assert json.loads(encoded) == {"a": text}
    assert len(encoded.decode().splitlines()) == 1


def test_replies_are_compact_json() -> None:
    response = json_reply({"a": [1, None]}, 418, {"x-a": "b"})
    assert response.body == b'{"a":[1,null]}'
    assert (response.status_code, response.headers["x-a"]) == (418, "b")
    assert response.headers["content-type"] == "application/json"
