"""Whom `POST /generate` at the root is for, by its body."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.api.app import create_app
from jan_serve.dialects.lmdeploy.dialect import lmdeploy_dialect
from jan_serve.dialects.lmdeploy.outline import is_lmdeploy_body
from jan_serve.dialects.openai.dialect import openai_dialect
from tests.support.engine.fake_client import FakeModels
from tests.support.helpers.compiling import translate_inline
from tests.support.helpers.rendering import render_inline
from tests.support.servers.fronts import http_client, make_settings


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


def operation(document: dict[str, Any], path: str) -> dict[str, Any]:
    return document["paths"][path]["post"]


def test_the_shared_route_has_what_both_protocols_take_and_answer() -> None:
    app = create_app(make_settings(), FakeModels(), render_inline, translate_inline)
    document = app.openapi()
    both = operation(document, "/generate")
    parts = [operation(document, path) for path in ("/tgi/generate", "/lmdeploy/generate")]
    assert both["tags"] == [tag for part in parts for tag in part["tags"]]
    for part in parts:
        content = part["requestBody"]["content"]["application/json"]
        assert content["schema"] in both["requestBody"]["content"]["application/json"]["schema"]["anyOf"]
        for status, response in part["responses"].items():
            assert set(response.get("content", {})) <= set(both["responses"][status].get("content", {}))
    assert set(both["responses"]["400"]["content"]) == {"text/plain", "application/json"}
    assert app.openapi() is document, "it is made once"
    assert operation(document, "/generate") is both


def test_without_the_other_protocol_nothing_changes() -> None:
    app = create_app(
        make_settings(),
        FakeModels(),
        render_inline,
        translate_inline,
        dialects=(openai_dialect, lmdeploy_dialect),
    )
    assert "/generate" not in app.openapi()["paths"]
