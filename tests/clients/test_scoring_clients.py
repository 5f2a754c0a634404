"""Clients of reranking and typed decisions, each in a process of the clients' environment."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from models.recipe.fixtures import write_tiny_llama
from models.recipe.reranker_fixtures import write_decoder_reranker
from tests.clients.running import run_client
from tests.clients.test_python_clients import PYTHON
from tests.integration.http.support import serving_models

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


@pytest.mark.parametrize("case", ["cohere_v2", "cohere_v1", "typesafe"])
def test_a_client_does_what_its_users_do(scoring_url: str, case: str) -> None:
    run_client(PYTHON, RUN, case, scoring_url)
