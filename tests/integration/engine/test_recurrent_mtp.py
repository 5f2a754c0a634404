"""Drafts of a head beside recurrent layers: a rejected one is dropped from their states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from models.recipe.mtp_fixtures import Knows, write_tiny_recurrent_mtp
from tests.support.models import EXACT
from tests.support.worker import generate, running_worker

pytestmark = pytest.mark.integration

TEXT = "The people said that water was great and every good house has a large door."
SETTINGS: dict[str, Any] = {"n_ctx": 2048, "parallel": 4, **EXACT}


def answers(path: Path, mode: str, prompt_lookup: str) -> tuple[list[str], int, int, int]:
    """Of one stream, and of four that go on from where it ended; steps of the one, drafted and accepted tokens."""
    with running_worker(path, **SETTINGS, mtp=mode, prompt_lookup=prompt_lookup) as worker:
        texts = [worker.run_one(5 * TEXT, max_tokens=60, ignore_eos=True).text]
        steps = worker.stats().steps_total
        # Where the first ended after a rejected draft, these copy its state.
        follow = [generate(5 * TEXT + texts[0] + f" {i}", max_tokens=40, ignore_eos=True) for i in range(4)]
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
