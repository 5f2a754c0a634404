"""Each optimisation has a switch and a counter, and changes no answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jan_serve.core.engine_stats import EngineStats
from tests.support.models import EXACT
from tests.support.worker import Worker, generate, running_worker

pytestmark = pytest.mark.integration

COMMON = " ".join(f"water {n} house {n * 7 % 50} door" for n in range(30))
OTHER = " ".join(f"people {n} think {n * 3 % 40} large" for n in range(30))


def together(worker: Worker) -> list[str]:
    """Four clients with one long prefix, all of whom wait until the four choices of another one end in one step."""
    running = generate("hello", max_tokens=200, n=4, ignore_eos=True)
    requests = [generate(f"{COMMON} and then {number}", ignore_eos=True) for number in range(4)]
    worker.send(running)
    while not worker.results[running.id].choices:
        worker.advance()
    worker.send(*requests)
    worker.until(running, *requests)
    return [text for request in (running, *requests) for text in worker.results[request.id].texts]


def one_after_the_other(worker: Worker) -> list[str]:
    """Prompts that have nothing in common, the first of them again at the end."""
    prompts = [f"{number} {COMMON}" for number in (1, 2, 3, 1)]
    return [worker.run_one(prompt, ignore_eos=True).text for prompt in prompts]


def behind_a_running_one(worker: Worker) -> list[str]:
    """With one slot: two waiting requests, the later one with a cached prompt."""
    seen = worker.run_one(COMMON, ignore_eos=True).text
    running = generate("hello", max_tokens=100, ignore_eos=True)
    new, again = (generate(prompt, ignore_eos=True) for prompt in (OTHER, COMMON))
    worker.send(running)
    worker.advance()
    results = worker.run(new, again)
    worker.until(running)
    return [seen, worker.results[running.id].text, *(result.text for result in results)]


@dataclass(frozen=True)
class Switch:
    """Settings with it on and off, the counter that shows it, and its value for both."""

    work: Callable[[Worker], list[str]]
    on: dict[str, Any]
    off: dict[str, Any]
    counter: Callable[[EngineStats], int]
    settings: dict[str, Any]


SWITCHES = {
    "share_prefill": Switch(
        together,
        {"share_prefill": True},
        {"share_prefill": False},
        lambda stats: stats.shared_tokens_total,
        {"n_ctx": 4096, "parallel": 4},
    ),
    "prefer_cached": Switch(
        behind_a_running_one,
        {"prefer_cached": True},
        {"prefer_cached": False},
        lambda stats: stats.passed_total,
        {"n_ctx": 1024, "parallel": 1},
    ),
    "idle_cells": Switch(
        one_after_the_other,
        {"idle_cells": 0},
        {"idle_cells": 1 << 20},
        lambda stats: stats.made_way_total,
        {"n_ctx": 4096, "parallel": 1, "cache_ram_bytes": 1 << 26},
    ),
    "cache_ram": Switch(
        one_after_the_other,
        {"cache_ram_bytes": 1 << 26},
        {"cache_ram_bytes": 0},
        lambda stats: stats.restored_total,
        {"n_ctx": 512, "parallel": 1},
    ),
    "prompt_lookup": Switch(
        one_after_the_other,
        {"prompt_lookup": "on"},
        {"prompt_lookup": "off"},
        lambda stats: stats.accepted_total,
        {"n_ctx": 4096, "parallel": 1},
    ),
    "cache_sequences": Switch(
        one_after_the_other,
        {"cache_sequences": 16},
        {"cache_sequences": 0, "cache_ram_bytes": 0},
        lambda stats: stats.cached_tokens_total,
        {"n_ctx": 4096, "parallel": 1},
    ),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_changes_the_work_and_no_answer(exact_llama: Path, name: str) -> None:
    switch = SWITCHES[name]
    answers: list[list[str]] = []
    counted: list[int] = []
    for settings in (switch.on, switch.off):
        with running_worker(exact_llama, **EXACT, **switch.settings, **settings) as worker:
            answers.append(switch.work(worker))
            counted.append(switch.counter(worker.stats()))
    assert answers[0] == answers[1]
    assert counted[0] > 0
    assert counted[1] == 0
