"""Agents' libraries against the built-in model, each in a process of the clients' environment.

LangChain and LiteLLM are in `suites`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.resources import builtin_model
from tests.clients.running import run_client
from tests.integration.http.support import serving_models
from tests.integration.store.conftest import FILE, REPO, model_bytes
from tests.support.processes import wait_until
from tests.support.servers.fake_hub import FakeRepo, running_hub
from tests.support.servers.proxied import nodes_of, proxying

PYTHON = Path(__file__).parents[2] / ".venv-clients" / "bin" / "python"
RUN = Path(__file__).with_name("run.py")
RUN_OLLAMA = Path(__file__).with_name("run_ollama.py")
CASES = (
    "openai_chat", "openai_tools", "openai_parse", "openai_responses", "anthropic_messages",
    "anthropic_tools", "anthropic_errors", "instructor", "pydantic_ai", "text_generation", "huggingface_endpoint",
)  # fmt: skip
OLLAMA_CASES = ("ollama_chat", "ollama_models", "langchain_ollama")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not PYTHON.exists(), reason="the clients are not installed (scripts/install-clients)"),
]


@pytest.mark.parametrize("case", [*CASES, "openai_batches", "anthropic_batches"])
def test_a_client_does_what_its_users_do(url: str, case: str) -> None:
    run_client(PYTHON, RUN, case, url)


@pytest.mark.parametrize("case", OLLAMA_CASES)
def test_a_client_of_ollama_does_what_its_users_do(url: str, case: str) -> None:
    run_client(PYTHON, RUN_OLLAMA, case, url)


def test_ollama_pulls_from_a_hub(tmp_path: Path) -> None:
    model = builtin_model()
    assert model is not None
    with running_hub() as hub:
        hub.repos[REPO] = FakeRepo({FILE: model_bytes(1 << 16)})
        with serving_models(tmp_path, model, flags=("--hf-endpoint", hub.url)) as server:
            run_client(PYTHON, RUN_OLLAMA, "ollama_pull", server.url())


@pytest.mark.parametrize("case", ["openai_chat", "openai_tools", "openai_responses"])
def test_openais_package_does_the_same_through_a_proxy(url: str, case: str, tmp_path: Path) -> None:
    with proxying(tmp_path, "--node", url) as proxy:
        wait_until(lambda: nodes_of(proxy.url())[0]["routable"])
        run_client(PYTHON, RUN, case, proxy.url())
