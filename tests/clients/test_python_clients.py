"""Agents' libraries against the built-in model, each in a process of the clients' own environment."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from jan_serve.resources import builtin_model
from tests.integration.http.support import serving_models

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-clients" / "bin" / "python"
RUN = Path(__file__).with_name("run.py")
CASES = ("openai_chat", "openai_tools", "openai_parse", "langchain", "instructor", "litellm", "pydantic_ai")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not PYTHON.exists(), reason="the clients are not installed (scripts/install-clients)"),
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    model = builtin_model()
    assert model is not None
    with serving_models(tmp_path_factory.mktemp("clients"), model) as server:
        yield server.url()


@pytest.mark.parametrize("case", CASES)
def test_a_client_does_what_its_users_do(url: str, case: str) -> None:
    hidden = ("OPENAI", "HTTP", "HTTPS", "ALL")
    environment = {name: value for name, value in os.environ.items() if not name.upper().startswith(hidden)}
    done = subprocess.run(
        [PYTHON, RUN, case, url],
        env={**environment, "LANGSMITH_TRACING": "false", "NO_PROXY": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
