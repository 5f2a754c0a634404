"""How long drafts are, by what steps take and how often drafts are right."""

from __future__ import annotations

from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from jan_serve.engine.drafting.draft_lengths import DraftCandidate, DraftTrials, draft_lengths, expected_run

Seconds = npt.NDArray[np.float64]

LINE = np.arange(129) * 1.0 + 1.0  # a step of one token takes 2, each more takes 1
TILES = 20.0 + 10.0 * np.ceil(np.arange(129) / 4)  # as kernels do that compute four tokens at once
FLAT = np.full(129, 5.0)  # tokens are free on a large device


@pytest.mark.parametrize(
    ("curve", "num_tokens", "candidates", "most", "expected"),
    [
        (FLAT, 1, [DraftCandidate(0.9, 32)], 64, [32]),
        (FLAT, 1, [DraftCandidate(0.5, 32)], 64, [9]),
        (FLAT, 1, [DraftCandidate(0.5, 32)], 5, [5]),
        (FLAT, 1, [DraftCandidate(0.5, 3)], 64, [3]),
        (FLAT, 2, [DraftCandidate(0.9, 4), DraftCandidate(0.1, 4)], 6, [4, 2]),
        (FLAT, 1, [DraftCandidate(0.0, 32)], 64, [0]),
        (LINE, 1, [DraftCandidate(0.4, 8)], 64, [0]),
        (LINE, 1, [DraftCandidate(0.9, 3)], 64, [3]),
        (LINE, 8, [DraftCandidate(0.5, 8)] * 8, 64, [0] * 8),
        # A tile is filled or left alone.
        (TILES, 4, [DraftCandidate(0.9, 1)] * 4, 64, [1, 1, 1, 1]),
        (
            TILES,
            4,
            [DraftCandidate(0.9, 1), DraftCandidate(0.0, 0), DraftCandidate(0.0, 0), DraftCandidate(0.0, 0)],
            64,
            [0] * 4,
        ),
        (TILES, 3, [DraftCandidate(0.3, 1), DraftCandidate(0.2, 9), DraftCandidate(0.0, 0)], 64, [1, 0, 0]),
        (FLAT, 1, [], 64, []),
        # Of steps twice as large as the largest so far nothing is known.
        (np.append(LINE[:9], [np.inf] * 120), 12, [DraftCandidate(0.9, 4)] * 2, 64, [0, 0]),
        (FLAT, 1, [DraftCandidate(0.9, -3)], 64, [0]),
        (FLAT, 1, [DraftCandidate(0.9, 8)], 0, [0]),
    ],
)
def test_lengths(
    curve: Seconds, num_tokens: int, candidates: list[DraftCandidate], most: int, expected: list[int]
) -> None:
    assert draft_lengths(candidates, num_tokens, curve.item, most) == expected


@pytest.mark.parametrize("curve", [LINE, TILES, FLAT], ids=["line", "tiles", "flat"])
def test_no_other_choice_makes_the_streams_faster(curve: Seconds) -> None:
    for shares in product((0.2, 0.6, 0.95), repeat=3):

        def rate(lengths: tuple[int, ...], shares: tuple[float, ...] = shares) -> float:
            tokens = [sum(share**i for i in range(n + 1)) for share, n in zip(shares, lengths, strict=True)]
            return float(np.prod(tokens) ** (1 / 3)) / float(curve[3 + sum(lengths)]) ** 2

        chosen = draft_lengths([DraftCandidate(share, 4) for share in shares], 3, curve.item, 64)
        best = max(rate(lengths) for lengths in product(range(5), repeat=3))
        assert rate(tuple(chosen)) >= best / 1.02 - 1e-9


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0.0), (0.5, 1.0), (0.9, 9.0), (1.0, np.inf)])
def test_right_tokens_in_a_row(share: float, expected: float) -> None:
    assert expected_run(DraftCandidate(share, 4)) == pytest.approx(expected)


LIKELY = DraftCandidate(0.9, 32)


def tried(candidate: DraftCandidate, steps: int, **least: float) -> list[tuple[int, int]]:
    """Number of the step and length of each trial, beside a stream without a guess."""
    trials = DraftTrials()
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
    trials = DraftTrials()
    for _ in range(31):
        assert trials.lengths([0], [LIKELY], 60) == [0]
    assert trials.lengths([5], [LIKELY], 60) == [5]
    assert trials.lengths([0], [LIKELY], 60) == [0]
