"""A prompt that does not fit is answered in every dialect if the context grows, and refused with the way out if not."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

from jan_serve.resources import builtin_model
from tests.integration.http.support import serving_models
from tests.support.clients.raw_http import get, post

pytestmark = pytest.mark.integration

TEXT: Final = "The people said that water was great. " * 9
TURNS: Final = [{"role": "user", "content": TEXT}]
ROUTES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "tgi": ("/generate", {"inputs": TEXT, "parameters": {"max_new_tokens": 4}}),
    "openai": ("/v1/chat/completions", {"messages": TURNS, "max_tokens": 4}),
    "completions": ("/v1/completions", {"prompt": TEXT, "max_tokens": 4}),
    "responses": ("/v1/responses", {"input": TEXT, "max_output_tokens": 16}),
    "anthropic": ("/v1/messages", {"messages": TURNS, "max_tokens": 4}),
    "ollama": ("/api/chat", {"messages": TURNS, "stream": False, "options": {"num_predict": 4}}),
    "lmdeploy": ("/lmdeploy/v1/completions", {"prompt": TEXT, "max_tokens": 4}),
}
"""TGI's names no model, so that it gets the first."""


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


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Generator[str]:
    """A server with a model for each dialect, whose context is short until it asks."""
    folder = tmp_path_factory.mktemp("growing")
    models = [shutil.copyfile(model, folder / f"{dialect}.gguf") for dialect in ROUTES]
    with serving_models(folder, *models, flags=("--n-ctx", "64", "--grow-context")) as server:
        yield server.url()


@pytest.mark.parametrize("dialect", ROUTES)
def test_the_refusal_names_the_setting(fixed: str, dialect: str) -> None:
    path, body = ROUTES[dialect]
    response = post(fixed, path, {"model": "jan-tiny", **body})
    assert response.status in (400, 413, 422), response.body
    assert b"grow_context" in response.body


@pytest.mark.parametrize("dialect", ROUTES)
def test_it_is_answered_where_the_context_grows(growing: str, dialect: str) -> None:
    path, body = ROUTES[dialect]
    for name, grows in ((f"first-{dialect}", True), (f"second-{dialect}", False)):
        headers = {"x-request-id": name}
        response = post(growing, path, {"model": dialect, **body}, headers=headers)
        assert response.status == 200, response.body
        why = get(growing, f"/extras/why/{name}").json()
        assert ("growth" in why["phases"]) is grows
    [card] = [card for card in get(growing, "/v1/models").json()["data"] if card["id"] == dialect]
    assert card["meta"]["n_ctx"] == 256
