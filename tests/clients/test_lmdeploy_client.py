"""LMDeploy's own client against the built-in model, in a process of the clients' environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.running import run_client

CLIENTS = Path(__file__).parents[2] / ".venv-clients"
PYTHON = CLIENTS / "bin" / "python"
RUN = Path(__file__).with_name("run_lmdeploy.py")
CASES = ("models", "encode", "chat", "chat_options", "completions", "refusals")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        not (PYTHON.exists() and (CLIENTS / "lmdeploy").exists()),
        reason="LMDeploy's client is not installed (make test-clients)",
    ),
]


@pytest.mark.parametrize("case", CASES)
def test_the_client_does_what_its_users_do(url: str, case: str) -> None:
    run_client(PYTHON, RUN, case, url)
