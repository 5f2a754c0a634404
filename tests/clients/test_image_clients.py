"""Images through agents' libraries, against the built-in model."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.clients.running import run_client
from tests.clients.test_node_clients import FOLDER, NODE, needs_node
from tests.support.servers.served import serving

PYTHON = Path(__file__).parents[2] / ".venv-clients" / "bin" / "python"
RUN = Path(__file__).with_name("run_images.py")
CASES = ("openai_chat", "openai_responses", "anthropic_messages", "ollama_chat", "huggingface_chat")

NODE_CASES = ("openaiNode", "anthropicNode", "ollamaNode", "aiSdk")

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def seeing_url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with serving(tmp_path_factory.mktemp("seeing"), "--port", "0") as server:
        yield server.url()


@pytest.mark.skipif(not PYTHON.exists(), reason="the clients are not installed (scripts/install-clients)")
@pytest.mark.parametrize("case", CASES)
def test_a_client_sends_an_image(seeing_url: str, case: str) -> None:
    run_client(PYTHON, RUN, case, seeing_url)


@needs_node
@pytest.mark.parametrize("case", NODE_CASES)
def test_a_client_in_javascript_sends_an_image(seeing_url: str, case: str) -> None:
    assert NODE is not None
    run_client(NODE, FOLDER / "run_images.mjs", case, seeing_url)
