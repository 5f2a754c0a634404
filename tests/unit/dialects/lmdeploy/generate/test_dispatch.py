"""Whom `POST /generate` at the root is for, by its body."""

from __future__ import annotations

import pytest

from jan_serve.dialects.lmdeploy.generate.dispatch import is_lmdeploy_body
from tests.support.fronts import http_client


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"inputs": "a"}', False),
        (b'{"prompt": "a"}', True),
        (b'{"input_ids": [1]}', True),
        (b'{"inputs": "a", "prompt": "b"}', False),
        (b'{"parameters": {}}', False),
        (b"{}", True),
        (b'{"stream": true}', True),
        (b'{"nested": {"inputs": "a"}}', True),
        (b'["inputs"]', False),
        (b'{"inputs": ', False),
        (b"\xff", False),
        (b"", False),
        (b'{"inputs": null}', False),
        (b'{"prompt": "a", "parameters": {}}', True),
        (b"[" * 100_000, False),
        (b'{"prompt": ' + b"[" * 100_000, False),
    ],
)
def test_members_decide(body: bytes, expected: bool) -> None:
    assert is_lmdeploy_body(body) is expected


@pytest.mark.anyio
async def test_each_protocol_answers_in_its_own_form() -> None:
    async with http_client(max_body_bytes=2000) as client:
        native = await client.post("/generate", json={"inputs": "a", "parameters": {}})
        other = await client.post("/generate", json={"prompt": "a"})
        refused = await client.post("/generate", json={"inputs": 1})
        other_refused = await client.post("/generate", json={"prompt": ""})
        too_long = await client.post(
            "/generate",
            content=b'{"inputs": "' + b"a" * 3000 + b'"}',
            headers={"content-type": "application/json"},
        )
    assert set(native.json()) == {"generated_text"}
    assert {"text", "output_ids", "meta_info"} <= set(other.json())
    assert refused.headers["content-type"].startswith("text/plain")
    assert other_refused.headers["content-type"] == "application/json"
    assert too_long.status_code == 413
