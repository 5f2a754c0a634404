"""A prompt that does not fit is answered in every dialect if the context grows, and refused with the way out if not."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

from jan_serve.resources import builtin_model
from tests.integration.http.support import serving_models
from tests.support.raw_http import get, post

pytestmark = pytest.mark.integration

TEXT: Final = "The people said that water was great. " * 9
TURNS: Final = [{"role": "user", "content": TEXT}]
ROUTES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "openai": ("/v1/chat/completions", {"messages": TURNS, "max_tokens": 4}),
    "completions": ("/v1/completions", {"prompt": TEXT, "max_tokens": 4}),
    "responses": ("/v1/responses", {"input": TEXT, "max_output_tokens": 16}),
    "anthropic": ("/v1/messages", {"messages": TURNS, "max_tokens": 4}),
    "ollama": ("/api/chat", {"messages": TURNS, "stream": False, "options": {"num_predict": 4}}),
    "tgi": ("/generate", {"inputs": TEXT, "parameters": {"max_new_tokens": 4}}),
    "lmdeploy": ("/lmdeploy/generate", {"prompt": TEXT, "max_tokens": 4}),
}


@pytest.fixture(scope="module")
def model() -> Path:
    path = builtin_model()
    assert path is not None
    return path


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Generator[str]:
    folder = tmp_path_factory.mktemp("fixed")
    with serving_models(folder, model, flags=("--n-ctx", "64")) as server:
        yield server.url()


@pytest.mark.parametrize("dialect", ROUTES)
def test_the_refusal_names_the_setting(fixed: str, dialect: str) -> None:
    path, body = ROUTES[dialect]
    response = post(fixed, path, {"model": "jan-tiny", **body})
    assert response.status in (400, 413, 422), response.body
    assert b"grow_context" in response.body


@pytest.mark.parametrize("dialect", ROUTES)
def test_it_is_answered_where_the_context_grows(tmp_path: Path, model: Path, dialect: str) -> None:
    path, body = ROUTES[dialect]
    with serving_models(tmp_path, model, flags=("--n-ctx", "64", "--grow-context")) as server:
        for name, grows in (("first", True), ("second", False)):
            headers = {"x-request-id": name}
            response = post(server.url(), path, {"model": "jan-tiny", **body}, headers=headers)
            assert response.status == 200, response.body
            why = get(server.url(), f"/extras/why/{name}").json()
            assert ("growth" in why["phases"]) is grows
        [card] = [card for card in get(server.url(), "/v1/models").json()["data"] if card["id"] == "jan-tiny"]
        assert card["meta"]["n_ctx"] == 256
