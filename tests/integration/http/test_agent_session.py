"""A coding agent's ten turns on /v1/messages: from the second one on, only what is new is computed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.agent_session import TURNS, agent_requests
from tests.integration.http.support import serving_models
from tests.support.raw_http import post

pytestmark = pytest.mark.integration

MAX_SHARE_ANEW = 0.05


def test_a_turn_computes_at_most_a_twentieth_of_its_prompt(exact_llama: Path, tmp_path: Path) -> None:
    bodies = agent_requests("exact-llama", 1, share=0.04, max_tokens=4)
    with serving_models(tmp_path, exact_llama, flags=("--n-ctx", "32768")) as server:
        url = server.url()
        usages = [post(url, "/v1/messages", body).json()["usage"] for body in bodies]
        counted = post(url, "/v1/messages/count_tokens", bodies[-1]).json()
    shares: list[float] = []
    for usage in usages:
        total = usage["input_tokens"] + usage["cache_read_input_tokens"]
        shares.append(usage["input_tokens"] / total)
    assert len(shares) == TURNS
    assert shares[0] == 1.0
    assert max(shares[1:]) <= MAX_SHARE_ANEW, shares
    assert counted["input_tokens"] == usages[-1]["input_tokens"] + usages[-1]["cache_read_input_tokens"]
