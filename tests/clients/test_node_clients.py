"""JavaScript clients against the built-in model: `make test-clients` installs them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.clients.running import run_client

FOLDER = Path(__file__).with_name("node")
NODE = shutil.which("node")

needs_node = pytest.mark.skipif(
    NODE is None or not (FOLDER / "node_modules").is_dir(),
    reason="the JavaScript clients are not installed (make test-clients)",
)
pytestmark = [pytest.mark.integration, needs_node]


@pytest.mark.parametrize(
    "case", ["openaiNode", "openaiResponses", "anthropicNode", "aiSdk", "aiSdkResponses", "ollamaNode"]
)
def test_a_client_does_what_its_users_do(url: str, case: str) -> None:
    assert NODE is not None
    run_client(NODE, FOLDER / "run.mjs", case, url)
