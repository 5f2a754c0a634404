"""The AI SDK's providers, each with what its users do; node/ai_sdk.mjs has the cases.

Runs in the environment of the clients, against the server of JAN_SERVE_URL; needs node, and its packages in node/.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

NODE = shutil.which("node")
FOLDER = Path(__file__).parents[1] / "node"
CHATS = ("text", "streamed text", "cut text", "refused request", "left stream")
TALKS = (
    "tool loop", "streamed tool loop", "forced tool", "no tool", "object", "streamed object", "object beside turns",
    "picture", "thought",
)  # fmt: skip
CASES = [
    *(
        f"{provider}: {case}"
        for provider in ("openai responses", "openai chat", "openai-compatible chat", "anthropic", "ollama")
        for case in (*CHATS, *TALKS)
    ),
    *(
        f"{provider}: {case}"
        for provider in ("openai completion", "openai-compatible completion")
        for case in CHATS
    ),
    *(
        f"{provider}: {case}"
        for provider in ("openai", "openai-compatible", "ollama")
        for case in ("embedding", "embeddings")
    ),
]


@pytest.fixture(scope="session")
def outcomes() -> dict[str, str | None]:
    """Errors of all cases, run in one process."""
    if NODE is None or not (FOLDER / "node_modules").is_dir():
        pytest.skip("the JavaScript clients are not installed")
    done = subprocess.run(
        [NODE, FOLDER / "ai_sdk.mjs", os.environ["JAN_SERVE_URL"]],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("case", CASES)
def test_a_provider_does_what_its_users_do(outcomes: dict[str, str | None], case: str) -> None:
    assert outcomes[case] is None, outcomes[case]


def test_no_case_is_forgotten(outcomes: dict[str, str | None]) -> None:
    assert outcomes.keys() == set(CASES)
