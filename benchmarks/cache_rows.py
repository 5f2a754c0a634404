"""Rows for prompts that the server knows."""

from __future__ import annotations

import statistics

from benchmarks.figures import Figures
from benchmarks.load import Job, burst, words
from benchmarks.servers import Running

# About 4,000 tokens.
LONG_WORDS = 1420


def _first_ms(server: Running, prompt: str) -> float:
    return burst(server.base, [Job(prompt, 4)]).first_ms


def restart(server: Running, seed: int) -> Figures:
    """Time to the first token after a prefix of 4,000 tokens: cold, warm, and after a restart of the server."""
    prefix = words(seed + 4000, LONG_WORDS)
    burst(server.base, [Job(words(seed + 999, 5), 2)])
    cold = _first_ms(server, f"{prefix}\nfirst")
    warm = _first_ms(server, f"{prefix}\nsecond")
    figures = {"cold_ms": cold, "warm_ms": warm}
    if server.restart is not None:
        server.restart()
        # Load the model first: only the prompt is measured.
        burst(server.base, [Job(words(seed + 999, 5), 2)])
        after = _first_ms(server, f"{prefix}\nthird")
        figures |= {"restart_ms": after, "ratio": after / cold}
    return figures


def alternating(server: Running, seed: int) -> Figures:
    """Two clients with different prefixes of 4,000 tokens take turns: time to the first token after the first round."""
    prefixes = [words(seed + 5000 + i, LONG_WORDS) for i in range(2)]
    for prefix in prefixes:
        _first_ms(server, f"{prefix}\nfirst")
    later = [_first_ms(server, f"{prefix}\n{turn}") for turn in range(3) for prefix in prefixes]
    return {"first_ms": statistics.median(later), "worst_ms": max(later)}
