"""The row for a coding agent on /v1/messages."""

from __future__ import annotations

import time
from typing import Final

from benchmarks.agent_session import agent_requests
from benchmarks.figures import Figures
from benchmarks.servers import Running

_HEADERS: Final = {"anthropic-version": "2023-06-01"}


def agent_turns(server: Running, seed: int) -> Figures:
    """Ten requests of an agent, one after another. wall_s: of those after the first, whose prompt is in no cache.

    anew: the share of their prompts that was computed, as the server counts it.
    """
    first_s, wall_s = 0.0, 0.0
    computed = total = 0
    for turn, body in enumerate(agent_requests("default", seed)):
        began = time.perf_counter()
        usage = server.post("/v1/messages", body, _HEADERS)["usage"]
        took = time.perf_counter() - began
        if turn == 0:
            first_s = took
            continue
        wall_s += took
        computed += usage["input_tokens"]
        total += usage["input_tokens"] + usage.get("cache_read_input_tokens", 0)
    return {"wall_s": wall_s, "first_s": first_s, "anew": computed / total, "prompt_tokens": total / 9}
