"""What a completed request says of the engine's work for it: tiers of the cache, guesses, forced tokens, waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jan_serve.core.constraint import CompiledGrammar, Guide
from jan_serve.ipc.messages import ShutdownRequest
from tests.support.engine.worker import Worker, generate, running_worker
from tests.support.gguf.models import EXACT

pytestmark = pytest.mark.integration

LONG = " ".join(f"water {n} house {n * 7 % 50} door" for n in range(30))
OTHER = " ".join(f"people {n} think {n * 3 % 40} large" for n in range(30))


def cached_in(worker: Worker, prompt: str) -> str | None:
    found = worker.run_one(prompt, max_tokens=2, ignore_eos=True).usage
    assert (found.cached_tokens > 0) == (found.work.cached_in is not None)
    return found.work.cached_in


def test_the_tier_that_the_prompt_came_from(exact_llama: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"n_ctx": 512, "parallel": 1, "cache_dir": str(tmp_path), **EXACT}
    with running_worker(exact_llama, cache_ram_bytes=1 << 26, **settings) as worker:
        # The second prompt needs the cells of the first one, whose state goes to RAM.
        assert [cached_in(worker, prompt) for prompt in (LONG, LONG, OTHER, LONG)] == [
            None,
            "cells",
            None,
            "ram",
        ]
        worker.send(ShutdownRequest())
        assert worker.process.wait(60.0) == 0
    with running_worker(exact_llama, **settings) as worker:
        assert cached_in(worker, LONG) == "disk"


def test_guessed_and_forced_tokens_of_each_request_add_up_to_those_of_the_engine(exact_llama: Path) -> None:
    grammar = CompiledGrammar(lark='start: "a forced text " /[0-9]/ " and another one"')
    text = "The people said that water was great and every good house has a large door."
    with running_worker(exact_llama, n_ctx=1024, parallel=4, prompt_lookup="on", **EXACT) as worker:
        # Greedy among three tokens soon goes round in a circle, which is easy to guess.
        circle: dict[str, Any] = {"logit_bias": {65: 90.0, 66: 90.0, 67: 90.0}, "ignore_eos": True}
        results = [
            worker.run_one(text, max_tokens=100, n=2, **circle),
            worker.run_one(text, guide=Guide(grammar=grammar), max_tokens=60),
            worker.run_one("x", max_tokens=1),
        ]
        works, stats = [result.usage.work for result in results], worker.stats()
    assert sum(work.drafted for work in works) == stats.drafted_total > 0
    assert sum(work.accepted for work in works) == stats.accepted_total > 0
    assert [work.forced for work in works] == [0, stats.forced_tokens_total, 0]
    assert stats.forced_tokens_total > 10
    assert (works[2].drafted, works[2].accepted) == (0, 0)


def test_waits_are_for_the_prompts_of_others_only(exact_llama: Path) -> None:
    with running_worker(exact_llama, n_ctx=4096, parallel=2, n_batch=32, n_ubatch=32, **EXACT) as worker:
        alone = worker.run_one(OTHER, max_tokens=20, ignore_eos=True).usage
        assert alone.work.others_s == 0.0
        choices = worker.run_one(OTHER + "x", max_tokens=20, ignore_eos=True, n=2).usage
        assert choices.work.others_s == 0.0
        writing = generate("x", max_tokens=2000, ignore_eos=True)
        # The last one waits for the slot of the short one, so that it is read while the first one writes.
        worker.run(writing, generate("y", max_tokens=1), generate(LONG, max_tokens=1))
        usage = worker.results[writing.id].usage
        assert 0.0 < usage.work.others_s <= usage.timings.decode_s
