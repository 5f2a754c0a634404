"""The model's own head for further tokens (MTP) changes how many steps an answer takes, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Generator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from jan_serve.core.constraint import CompiledGrammar, Guide
from models.recipe.corpus.mixture import examples
from models.recipe.head.head_file import write_with_head
from models.recipe.mtp_fixtures import Knows, write_tiny_mtp, write_tiny_recurrent_mtp
from tests.support.engine.worker import Worker, generate, running_worker
from tests.support.gguf.models import EXACT
from tests.support.sameness import assert_same

pytestmark = pytest.mark.integration

TEXT = "The people said that water was great and every good house has a large door."
GRAMMAR = CompiledGrammar(lark='start: ("ab" /[0-9]/ " cd ")+')
KINDS: tuple[Knows, ...] = ("nothing", "token", "hidden")
SETTINGS: dict[str, Any] = {"n_ctx": 2048, "parallel": 4, "prompt_lookup": "off", **EXACT}
CASES: list[dict[str, Any]] = [
    {"max_tokens": 120},
    {"max_tokens": 120, "repeat_penalty": 1.05, "frequency_penalty": 0.01},
    {"max_tokens": 120, "temperature": 0.8, "seed": 5},
    {"max_tokens": 60, "logprobs": 2},
    {"max_tokens": 120, "stop": ("e", "th")},
    {"max_tokens": 60, "guide": Guide(grammar=GRAMMAR)},
]


@pytest.fixture(scope="module", params=KINDS)
def workers(request: pytest.FixtureRequest, model_folder: Path) -> Generator[tuple[Knows, Worker, Worker]]:
    """What the head knows, a worker without its drafts, and one with them."""
    path = model_folder / f"mtp-{request.param}.gguf"
    write_tiny_mtp(path, knows=request.param, n_ctx=2048, quantize=False)
    with running_worker(path, **SETTINGS) as plain, running_worker(path, mtp="on", **SETTINGS) as drafting:
        yield request.param, plain, drafting


@pytest.mark.parametrize("fields", CASES, ids=lambda fields: "-".join(fields))
def test_answers_are_the_same(workers: tuple[Knows, Worker, Worker], fields: dict[str, Any]) -> None:
    _, plain, drafting = workers
    request = generate(TEXT, **{"ignore_eos": "grammar" not in fields, "return_tokens": True, **fields})
    expected, found = (worker.run(request)[0] for worker in (plain, drafting))
    assert_same(plain, request, found.choice, expected.choice)


def test_several_at_once_and_later_turns_are_the_same(workers: tuple[Knows, Worker, Worker]) -> None:
    answers: list[list[str]] = []
    for worker in workers[1:]:
        texts: list[str] = []
        for prompt in (TEXT, 40 * TEXT, 40 * TEXT + " And then"):
            batch = [generate(f"{prompt} {i}", max_tokens=40, ignore_eos=True) for i in range(6)]
            texts += [result.text for result in worker.run(*batch)]
        answers.append(texts)
    assert answers[0] == answers[1]


@pytest.mark.drawn
def test_what_the_head_knows_saves_steps(workers: tuple[Knows, Worker, Worker]) -> None:
    knows, plain, drafting = workers
    prompts = (TEXT + " Once", TEXT + " Once more", 30 * TEXT)
    start = plain.stats()
    for prompt in prompts:
        plain.run_one(prompt, max_tokens=120, ignore_eos=True)
    steps = plain.stats().steps_total - start.steps_total
    start = drafting.stats()
    for prompt in prompts:
        drafting.run_one(prompt, max_tokens=120, ignore_eos=True)
    end = drafting.stats()
    drafted = end.drafted_by_model_total - start.drafted_by_model_total
    accepted = end.accepted_by_model_total - start.accepted_by_model_total
    saved = (end.steps_total - start.steps_total) / steps
    assert plain.stats().drafted_total == 0
    if knows == "token":
        assert accepted == drafted and saved < 0.3
    elif knows == "hidden":
        # Each draft's first token is right only with the hidden state of exactly the token before.
        assert accepted >= 170 and saved < 0.6


def test_drafts_take_no_cells_of_running_sequences(model_folder: Path) -> None:
    path = model_folder / "mtp-crowded.gguf"
    write_tiny_mtp(path, knows="token", quantize=False)
    answers: list[list[str]] = []
    for mode in ("off", "on"):
        with running_worker(path, **{**SETTINGS, "n_ctx": 256, "mtp": mode}) as worker:
            batch = [generate(f"{i} {TEXT}", max_tokens=90, ignore_eos=True) for i in range(4)]
            answers.append([result.text for result in worker.run(*batch)])
            assert (worker.stats().accepted_by_model_total > 100) == (mode == "on")
    assert answers[0] == answers[1]


def test_on_the_cpu_alone_auto_leaves_the_head_out(model_folder: Path) -> None:
    path = model_folder / "mtp-auto.gguf"
    write_tiny_mtp(path, knows="token", quantize=False)
    with running_worker(path, **SETTINGS, mtp="auto") as worker:
        worker.run_one(TEXT, max_tokens=60, ignore_eos=True)
        assert worker.stats().drafted_total == 0


RECURRENT_TEXT = "The people said that water was great and every good house has a large door."
RECURRENT_SETTINGS: dict[str, Any] = {"n_ctx": 2048, "parallel": 4, **EXACT}


def answers(path: Path, mode: str, prompt_lookup: str) -> tuple[list[str], int, int, int]:
    """Texts of one stream, and of four that go on where it ended; steps of the one, drafted and accepted tokens."""
    with running_worker(path, **RECURRENT_SETTINGS, mtp=mode, prompt_lookup=prompt_lookup) as worker:
        texts = [worker.run_one(5 * RECURRENT_TEXT, max_tokens=60, ignore_eos=True).text]
        steps = worker.stats().steps_total
        # Where the first ended after a rejected draft, these copy its state.
        follow = [
            generate(5 * RECURRENT_TEXT + texts[0] + f" {i}", max_tokens=40, ignore_eos=True)
            for i in range(4)
        ]
        texts += [result.text for result in worker.run(*follow)]
        stats = worker.stats()
        return texts, steps, stats.drafted_total, stats.accepted_total


@pytest.mark.parametrize(("knows", "share"), [("nothing", 1.1), ("hidden", 0.65)])
def test_answers_are_the_same_in_no_more_steps(model_folder: Path, knows: Knows, share: float) -> None:
    """Look-ups in a text that repeats draft often, and mostly wrong; "hidden": the first drafted token is right."""
    path = model_folder / f"recurrent-mtp-{knows}.gguf"
    write_tiny_recurrent_mtp(path, knows=knows, n_ctx=2048, quantize=False)
    look_up = "on" if knows == "nothing" else "off"
    plain, steps, drafted, _ = answers(path, "off", "off")
    found, fewer, more_drafted, accepted = answers(path, "on", look_up)
    assert found == plain and drafted == 0
    assert more_drafted - accepted > 20
    assert fewer <= share * steps


MODEL = Path(__file__).resolve().parents[4] / "models" / "builtin" / "jan-tiny.gguf"
HEAD = Path(__file__).with_name("jan-tiny-head.gguf")
TRAINED_SETTINGS: dict[str, Any] = {"n_ctx": 2048, "parallel": 4, "prompt_lookup": "off", **EXACT}
N_PROMPTS = 12 if "TEST_DRAWS" in os.environ else 6


def prompts() -> list[str]:
    """Chats and texts that neither the model nor its head saw, up to the first answer."""
    found: list[str] = []
    for _, example in islice(examples("drafts", held_out=True), N_PROMPTS):
        pieces = list(example.pieces())
        first = next(at for at, piece in enumerate(pieces) if piece.learned)
        found.append("".join(piece.text for piece in pieces[:first]))
    return found


def answered(worker: Worker) -> tuple[list[list[int]], int]:
    """The answers' tokens, and the steps that they took."""
    before = worker.stats().steps_total
    answers = [worker.run_one(prompt, max_tokens=120, return_tokens=True).choice.ids for prompt in prompts()]
    return answers, worker.stats().steps_total - before


@pytest.mark.drawn
def test_a_trained_head_saves_steps_and_changes_nothing(model_folder: Path) -> None:
    path = model_folder / "jan-tiny-head.gguf"
    write_with_head(path, MODEL, HEAD, quantize=False)
    with running_worker(path, **TRAINED_SETTINGS) as worker:
        expected, steps = answered(worker)
        assert worker.stats().drafted_total == 0
    with running_worker(path, mtp="on", **TRAINED_SETTINGS) as worker:
        found, fewer = answered(worker)
        stats = worker.stats()
    assert found == expected
    assert sum(map(len, expected)) > 10 * N_PROMPTS
    assert stats.accepted_by_model_total >= 0.6 * stats.drafted_by_model_total
    assert fewer <= 0.7 * steps
