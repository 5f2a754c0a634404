"""When drafts are tried against the learnt costs, and how long they are then."""

from __future__ import annotations

import pytest

from jan_serve.engine.drafting.draft_choice import DraftCandidate
from jan_serve.engine.drafting.trials import Trials

LIKELY = DraftCandidate(0.9, 32)


def tried(candidate: DraftCandidate, steps: int, **least: float) -> list[tuple[int, int]]:
    """Number of the step and length of each trial, beside a stream without a guess."""
    trials = Trials()
    lengths = [trials.lengths([0, 0], [DraftCandidate(0.0, 0), candidate], 60, **least) for _ in range(steps)]
    assert all(none == 0 for none, _ in lengths)
    return [(number, length) for number, (_, length) in enumerate(lengths, start=1) if length]


def test_where_a_change_costs_much_a_trial_is_longer() -> None:
    assert tried(LIKELY, 40, least_tokens=6.0) == [(32, 12)]


@pytest.mark.parametrize(
    "candidate", [DraftCandidate(0.9, 4), DraftCandidate(0.1, 32, token_s=0.001)], ids=["short", "of a model"]
)
def test_what_promises_little_is_tried_seldom(candidate: DraftCandidate) -> None:
    """Short drafts of a head, and a model that was wrong: nothing else would show that they pay now."""
    assert [step for step, _ in tried(candidate, 1000, least_tokens=6.0)] == [384, 768]


def test_chosen_drafts_stay_and_count_anew() -> None:
    trials = Trials()
    for _ in range(31):
        assert trials.lengths([0], [LIKELY], 60) == [0]
    assert trials.lengths([5], [LIKELY], 60) == [5]
    assert trials.lengths([0], [LIKELY], 60) == [0]
