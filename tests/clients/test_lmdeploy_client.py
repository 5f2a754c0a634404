"""LMDeploy's own client against the built-in model, in a process of the clients' environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.lmdeploy_parts import CLIENT_VERSION, FOLDER
from tests.clients.running import run_client
from tests.support.processes import wait_until
from tests.support.servers.proxied import nodes_of, proxying

CLIENTS = Path(__file__).parents[2] / ".venv-clients"
PYTHON = CLIENTS / "bin" / "python"
RUN = ("-m", "tests.clients.run_lmdeploy")
CASES = ("models", "encode", "chat", "chat_options", "completions", "refusals")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        not (PYTHON.exists() and (FOLDER / CLIENT_VERSION).exists()),
        reason="LMDeploy's client is not installed (make test-clients)",
    ),
]


@pytest.mark.parametrize("case", CASES)
def test_the_client_does_what_its_users_do(url: str, case: str) -> None:
    run_client(PYTHON, *RUN, case, f"{url}/lmdeploy")


@pytest.mark.parametrize("case", CASES)
def test_it_does_the_same_through_a_proxy(url: str, case: str, tmp_path: Path) -> None:
    with proxying(tmp_path, "--node", f"{url}/lmdeploy") as proxy:
        wait_until(lambda: nodes_of(proxy.url())[0]["routable"])
        run_client(PYTHON, *RUN, case, proxy.url())
