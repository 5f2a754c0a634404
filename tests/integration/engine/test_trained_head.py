"""A head that was trained: the built-in model says the same with its drafts, in fewer steps."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from models.recipe.corpus.mixture import examples
from models.recipe.head.head_file import write_with_head
from tests.support.models import EXACT
from tests.support.worker import Worker, running_worker

pytestmark = pytest.mark.integration

MODEL = Path(__file__).resolve().parents[3] / "models" / "builtin" / "jan-tiny.gguf"
HEAD = Path(__file__).with_name("jan-tiny-head.gguf")
SETTINGS: dict[str, Any] = {"n_ctx": 2048, "parallel": 4, "prompt_lookup": "off", **EXACT}
N_PROMPTS = 12


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


def test_a_trained_head_saves_steps_and_changes_nothing(model_folder: Path) -> None:
    path = model_folder / "jan-tiny-head.gguf"
    write_with_head(path, MODEL, HEAD, quantize=False)
    with running_worker(path, **SETTINGS) as worker:
        expected, steps = answered(worker)
        assert worker.stats().drafted_total == 0
    with running_worker(path, mtp="on", **SETTINGS) as worker:
        found, fewer = answered(worker)
        stats = worker.stats()
    assert found == expected
    assert sum(map(len, expected)) > 10 * N_PROMPTS
    assert stats.accepted_by_model_total >= 0.6 * stats.drafted_by_model_total
    assert fewer <= 0.7 * steps
