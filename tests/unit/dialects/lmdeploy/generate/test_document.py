from __future__ import annotations

from typing import Any

from jan_serve.api.app import create_app
from jan_serve.dialects.lmdeploy.dialect import lmdeploy_dialect
from jan_serve.dialects.openai.dialect import openai_dialect
from tests.support.compiling import translate_inline
from tests.support.fake_client import FakeModels
from tests.support.fronts import make_settings
from tests.support.rendering import render_inline


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
