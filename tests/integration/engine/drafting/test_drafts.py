"""Drafts change how many steps an answer takes, and nothing else."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from jan_serve.core.constraint import CompiledGrammar, Guide
from jan_serve.core.request import RepetitionDetection
from jan_serve.errors import SettingsError
from tests.support.engine.worker import Worker, generate, running_worker
from tests.support.gguf.models import EXACT
from tests.support.sameness import assert_same

pytestmark = pytest.mark.integration

BUILTIN = Path(__file__).parents[4] / "models" / "builtin" / "jan-tiny.gguf"
TEXT = "The people said that water was great and every good house has a large door."
LOOP = TEXT + " " + TEXT + " " + TEXT


@pytest.fixture(scope="module")
def workers(exact_llama: Path) -> Generator[tuple[Worker, Worker]]:
    """One without drafts, one with."""
    settings: dict[str, Any] = {"n_ctx": 1024, "parallel": 4, **EXACT}
    with (
        running_worker(exact_llama, **settings) as plain,
        running_worker(exact_llama, prompt_lookup="on", **settings) as drafting,
    ):
        yield plain, drafting


GRAMMAR = CompiledGrammar(lark='start: ("ab" /[0-9]/ " cd ")+')

# Greedy answers of random weights loop, which suits drafts.
CASES: list[dict[str, Any]] = [
    {"max_tokens": 120},
    {"max_tokens": 120, "repetition_detection": RepetitionDetection(max_pattern_size=40, min_count=3)},
    {
        "max_tokens": 120,
        "repetition_detection": RepetitionDetection(max_pattern_size=40, min_count=3, escapes=2),
    },
    {"max_tokens": 120, "repeat_penalty": 1.05, "frequency_penalty": 0.01},
    {"max_tokens": 120, "temperature": 0.3, "seed": 5},
    {"max_tokens": 120, "temperature": 1.0, "top_k": 2, "seed": 6},
    {"max_tokens": 120, "logprobs": 2},
    {"max_tokens": 57},
    {"max_tokens": 120, "stop": ("e", "th")},
    {"max_tokens": 60, "guide": Guide(grammar=GRAMMAR)},
]


@pytest.mark.parametrize("fields", CASES, ids=lambda fields: "-".join(fields))
def test_answers_are_the_same(workers: tuple[Worker, Worker], fields: dict[str, Any]) -> None:
    plain, drafting = workers
    request = generate(LOOP, **{"ignore_eos": "grammar" not in fields, "return_tokens": True, **fields})
    expected, found = (worker.run(request)[0] for worker in (plain, drafting))
    assert_same(plain, request, found.choice, expected.choice)


def test_a_loop_takes_fewer_steps(workers: tuple[Worker, Worker]) -> None:
    steps: list[int] = []
    for worker in workers:
        before = worker.stats()
        # Greedy among three tokens soon goes round in a circle.
        worker.run_one(TEXT, max_tokens=200, ignore_eos=True, logit_bias={65: 90.0, 66: 90.0, 67: 90.0})
        after = worker.stats()
        steps.append(after.steps_total - before.steps_total)
    assert workers[1].stats().accepted_total > 50
    assert steps[1] < 0.7 * steps[0]


def test_cells_of_wrong_drafts_are_given_back(workers: tuple[Worker, Worker]) -> None:
    plain, drafting = workers
    requests = [
        generate(f"{i} {LOOP}", max_tokens=40 + i, ignore_eos=True, temperature=0.8, seed=i) for i in range(6)
    ]
    again = [
        generate(f"{i} {LOOP}", max_tokens=40 + i, ignore_eos=True, temperature=0.8, seed=i) for i in range(6)
    ]
    for worker, batch in ((plain, requests), (drafting, again)):
        worker.run(*batch)
    used = [worker.run_one("end", max_tokens=1).usage and worker.stats() for worker in workers]
    assert used[0].cached_sequences == used[1].cached_sequences
    assert used[0].cells_used == used[1].cells_used


def test_drafts_never_cost_a_running_sequence_its_cells(exact_llama: Path) -> None:
    with running_worker(exact_llama, n_ctx=256, parallel=2, prompt_lookup="on", **EXACT) as worker:
        together = [
            generate(TEXT, max_tokens=70, ignore_eos=True),
            generate(TEXT + " x", max_tokens=70, ignore_eos=True),
        ]
        results = worker.run(*together)
        alone = [worker.run_one(p, max_tokens=70, ignore_eos=True).text for p in (TEXT, TEXT + " x")]
        assert [result.text for result in results] == alone


@pytest.fixture(scope="module")
def with_model(exact_llama: Path) -> Generator[Worker]:
    """The model drafts for itself: every greedy guess is right."""
    settings: dict[str, Any] = {"n_ctx": 1024, "parallel": 4, "draft_path": str(exact_llama), **EXACT}
    with running_worker(exact_llama, **settings, prompt_lookup="on") as worker:
        yield worker


@pytest.mark.parametrize("fields", CASES, ids=lambda fields: "-".join(fields))
def test_answers_with_a_draft_model_are_the_same(
    workers: tuple[Worker, Worker], with_model: Worker, fields: dict[str, Any]
) -> None:
    prompt = "A large door, a small house."
    request = generate(prompt, **{"ignore_eos": "grammar" not in fields, "return_tokens": True, **fields})
    expected, found = (worker.run(request)[0] for worker in (workers[0], with_model))
    assert_same(workers[0], request, found.choice, expected.choice)


def test_a_draft_model_reads_long_prompts_and_serves_several_at_once(
    workers: tuple[Worker, Worker], with_model: Worker
) -> None:
    texts = [
        [
            result.text
            for result in worker.run(
                *(generate(f"{i} " + LOOP * (1 + i % 3), max_tokens=30, ignore_eos=True) for i in range(5))
            )
        ]
        for worker in (workers[0], with_model)
    ]
    assert texts[0] == texts[1]
    assert with_model.stats().accepted_total > 0


def test_a_draft_model_of_another_vocabulary_is_refused(exact_llama: Path, exact_recurrent: Path) -> None:
    for path in (exact_recurrent, BUILTIN):
        with (
            pytest.raises(SettingsError, match=r"draft_model: .*gguf has"),
            running_worker(exact_llama, draft_path=str(path)),
        ):
            pass
