"""Clients of reranking and typed decisions, each in a process of the clients' environment."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from models.recipe.fixtures import write_tiny_llama
from models.recipe.reranker_fixtures import write_decoder_reranker
from tests.clients.running import run_client
from tests.clients.test_python_clients import PYTHON
from tests.integration.http.support import serving_models

OPEN_WEBUI = os.environ.get("JAN_SERVE_OPEN_WEBUI", "")
RUN = Path(__file__).with_name("run_scoring.py")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not PYTHON.exists(), reason="the clients are not installed (scripts/install-clients)"),
]


@pytest.fixture(scope="module")
def scoring_url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    folder = tmp_path_factory.mktemp("scoring")
    write_decoder_reranker(folder / "reranker.gguf", head=True)
    write_tiny_llama(folder / "chat.gguf")
    with serving_models(folder / "server", folder / "reranker.gguf", folder / "chat.gguf") as server:
        yield server.url()


@pytest.mark.parametrize(
    "case", ["cohere_v2", "cohere_v1", "llama_index_jina", "llama_index_tei", "typesafe"]
)
def test_a_client_does_what_its_users_do(scoring_url: str, case: str) -> None:
    run_client(PYTHON, RUN, case, scoring_url)


@pytest.mark.skipif(not OPEN_WEBUI, reason="Open WebUI is not installed (set JAN_SERVE_OPEN_WEBUI)")
def test_open_webui_reranks(scoring_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_INIT_PY", "true")  # as its command sets it, to find its files
    monkeypatch.setenv("WEBUI_SECRET_KEY", "x")
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    run_client(Path(OPEN_WEBUI).with_name("python"), RUN, "open_webui", scoring_url)
