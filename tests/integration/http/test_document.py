"""Replies of a running server against Jan's API document, if it is available."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator

from tests.integration.http.support import GREEDY
from tests.support.raw_http import get, post
from tests.support.served import Served

pytestmark = pytest.mark.integration

SEEDS: Final = Path(__file__).resolve().parents[4] / "shared" / "seeds"
HELLO: Final = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found = sorted(SEEDS.glob("004_*.txt"))
    if not found:
        pytest.skip("Jan's API document is not beside this checkout")
    read: dict[str, Any] = json.loads(found[0].read_text(encoding="utf-8"))
    return read


REPLIES: Final[list[tuple[str, dict[str, Any]]]] = [
    ("/v1/completions", {"prompt": "hello", "max_tokens": 4}),
    ("/v1/completions", {"prompt": ["hello", "a"], "n": 2, "logprobs": 2, "echo": True, "max_tokens": 4}),
    ("/v1/completions", {"prompt": "hello", "suffix": "x", "best_of": 2, "max_tokens": 4}),
    ("/v1/chat/completions", {"messages": HELLO, "max_tokens": 4}),
    (
        "/v1/chat/completions",
        {"messages": HELLO, "max_tokens": 4, "logprobs": True, "top_logprobs": 2, "n": 2},
    ),
    ("/extras/tokenize", {"input": "hello"}),
    ("/extras/tokenize/count", {"input": "hello"}),
    ("/extras/detokenize", {"tokens": [65, 66]}),
]


@pytest.mark.parametrize(("path", "body"), REPLIES)
def test_replies_fit_jans_document(
    server: Served, document: dict[str, Any], path: str, body: dict[str, Any]
) -> None:
    response = post(server.url(), path, {**GREEDY, **body})
    assert response.status == 200
    _check(document, _schema(document, path, "200"), response.json())


@pytest.mark.parametrize("path", sorted({path for path, _ in REPLIES}))
def test_violations_fit_jans_document(server: Served, document: dict[str, Any], path: str) -> None:
    response = post(server.url(), path, {"prompt": {}, "messages": 1, "input": 2, "tokens": "x"})
    assert response.status == 422
    _check(document, _schema(document, path, "422"), response.json())


def test_the_model_list_fits_jans_document(server: Served, document: dict[str, Any]) -> None:
    response = get(server.url(), "/v1/models")
    assert response.json()["data"]
    _check(document, _schema(document, "/v1/models", "200", "get"), response.json())


def _schema(document: dict[str, Any], path: str, status: str, method: str = "post") -> dict[str, Any]:
    found: dict[str, Any] = document["paths"][path][method]["responses"][status]["content"]
    return found["application/json"]["schema"]


def _check(document: dict[str, Any], schema: dict[str, Any], instance: object) -> None:
    # A reply that may be text is checked as the object it is.
    options = [option for option in schema.get("anyOf", [schema]) if "$ref" in option]
    assert options
    validator: Any = Draft202012Validator({**options[0], "components": document["components"]})
    assert [error.message for error in validator.iter_errors(instance)] == []
