"""Each optimisation has a switch and a counter, and changes no answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jan_serve.core.constraint import CompiledGrammar, Guide
from jan_serve.core.engine_stats import EngineStats
from jan_serve.ipc.messages import EngineRequest
from tests.support.engine.worker import Worker, generate, running_worker
from tests.support.gguf.models import EXACT

pytestmark = pytest.mark.integration

COMMON = " ".join(f"water {n} house {n * 7 % 50} door" for n in range(30))
OTHER = " ".join(f"people {n} think {n * 3 % 40} large" for n in range(30))


def queued(worker: Worker, requests: list[EngineRequest], choices: int) -> list[str]:
    """The texts of requests that wait for all slots, which the choices of another one free in one step."""
    running = generate("hello", max_tokens=600, n=choices, ignore_eos=True)
    worker.send(running)
    while len(worker.results[running.id].choices) < choices:
        worker.advance()
    worker.send(*requests)
    worker.until(running, *requests)
    return [text for request in (running, *requests) for text in worker.results[request.id].texts]


def together(worker: Worker) -> list[str]:
    """Four clients with one long prefix."""
    requests = [generate(f"{COMMON} and then {number}", ignore_eos=True) for number in range(4)]
    return queued(worker, requests, choices=4)


def one_after_the_other(worker: Worker) -> list[str]:
    """Prompts that have nothing in common, the first of them again at the end."""
    prompts = [f"{number} {COMMON}" for number in (1, 2, 3, 1)]
    return [worker.run_one(prompt, ignore_eos=True).text for prompt in prompts]


def behind_a_running_one(worker: Worker) -> list[str]:
    """With one slot: two waiting requests, the later one with a cached prompt."""
    seen = worker.run_one(COMMON, ignore_eos=True).text
    requests = [generate(prompt, ignore_eos=True) for prompt in (OTHER, COMMON)]
    return [seen, *queued(worker, requests, choices=1)]


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
        {"n_ctx": 8192, "parallel": 4},
    ),
    "prefer_cached": Switch(
        behind_a_running_one,
        {"prefer_cached": True},
        {"prefer_cached": False},
        lambda stats: stats.passed_total,
        {"n_ctx": 4096, "parallel": 1},
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
    """Where this process stands still, requests come one after the other, and may share what they did not wait for."""
    switch = SWITCHES[name]
    answers: list[list[str]] = []
    for settings, is_on in ((switch.on, True), (switch.off, False)):
        counted: list[int] = []
        while len(counted) < 10 and (not counted or (counted[-1] > 0) != is_on):
            with running_worker(exact_llama, **EXACT, **switch.settings, **settings) as worker:
                answers.append(switch.work(worker))
                counted.append(switch.counter(worker.stats()))
        assert (counted[-1] > 0) == is_on, counted
    assert all(each == answers[0] for each in answers)


def test_parts_are_counted_as_often_as_they_happen(llama: Worker) -> None:
    before = llama.stats()
    llama.run_one("some words that nobody asked before", max_tokens=5, ignore_eos=True)
    after = llama.stats()
    steps = after.steps_total - before.steps_total
    prefills = sum(after.prefill_steps.whole.counts) - sum(before.prefill_steps.whole.counts)
    decodes = sum(after.decode_steps.whole.counts) - sum(before.decode_steps.whole.counts)
    turns = [late - early for early, late in zip(before.extra_tokens, after.extra_tokens, strict=True)]
    assert sum(count * (extra + 1) for extra, count in enumerate(turns)) == 5
    assert (prefills, decodes) == (steps - decodes, sum(turns) - 1)
    for kind in (after.prefill_steps, after.decode_steps):
        assert sum(kind.forward.counts) == sum(kind.whole.counts) == sum(kind.sampling.counts)
        assert 0 < kind.forward.seconds < kind.whole.seconds
        assert kind.failed == 0
    assert sum(after.decode_steps.leave.counts) - sum(before.decode_steps.leave.counts) == 1
    # There was no running sequence to join.
    assert after.prefill_steps.join == before.prefill_steps.join


def test_who_comes_beside_a_running_sequence_joins_it(llama: Worker) -> None:
    before, was_beside = llama.stats().prefill_steps.join, False
    for number in range(20):
        first = generate(f"the first one, {number}", max_tokens=400, ignore_eos=True)
        llama.send(first)
        while not llama.results[first.id].choices:
            llama.advance()
        llama.run(generate(f"another that comes later, {number}", max_tokens=1))
        was_beside = not llama.results[first.id].is_over
        llama.until(first)
        if was_beside:
            break
    after = llama.stats().prefill_steps.join
    assert was_beside
    assert sum(after.counts) > sum(before.counts)
    assert after.seconds > before.seconds


GRAMMAR = CompiledGrammar(lark='start: "{\\"the long key\\": " /[0-9]{2}/ "}"')


def test_the_switch_changes_the_work_and_not_the_text(exact_llama: Path) -> None:
    texts: list[str] = []
    forced: list[int] = []
    steps: list[int] = []
    for jump_forward in (True, False):
        with running_worker(exact_llama, n_ctx=512, jump_forward=jump_forward, **EXACT) as worker:
            texts.append(worker.run_one("hello", max_tokens=40, guide=Guide(grammar=GRAMMAR)).text)
            stats = worker.stats()
            forced.append(stats.forced_tokens_total)
            steps.append(stats.steps_total)
    assert texts[0] == texts[1]
    assert forced[0] > 5 and forced[1] == 0
    assert steps[0] < steps[1]


def test_what_comes_in_one_step_comes_in_one_piece_unless_its_tokens_are_asked_for(exact_llama: Path) -> None:
    with running_worker(exact_llama, n_ctx=512, **EXACT) as worker:
        plain, tokens = (
            worker.run_one("hello", max_tokens=40, guide=Guide(grammar=GRAMMAR), return_tokens=wanted)
            for wanted in (False, True)
        )
    assert plain.text == tokens.text
    generated = tokens.usage.completion_tokens
    assert len(plain.choice.deltas) < generated - 5
    assert len(tokens.choice.deltas) >= generated - 1
