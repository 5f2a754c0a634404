"""What a token of a prompt costs, and whether steps of both kinds save time."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from jan_serve.engine.scheduling.step_costs import PART, DecodeCosts, SizeChanges, StepCosts


@pytest.mark.parametrize(("second_s", "then_s"), [(0.01, 0.01), (0.09, 0.06)])
def test_the_first_prompt_reads_the_weights_from_the_disk(second_s: float, then_s: float) -> None:
    costs = StepCosts()
    costs.observe(0, 100, 100 * 0.05)
    costs.observe(0, 100, 100 * second_s)
    assert costs.prefill_token_s == pytest.approx(then_s)
    costs.observe(0, 100, 100 * then_s / 2)
    assert costs.prefill_token_s == pytest.approx(then_s * 0.875), "as slowly as ever from then on"


def test_one_slow_step_changes_a_cost_by_a_quarter_at_most() -> None:
    costs = StepCosts()
    for _ in range(3):
        costs.observe(0, 100, 1.0)
    costs.observe(0, 100, 100.0)
    assert costs.prefill_token_s == pytest.approx(0.0125)


def test_a_token_deep_in_a_prompt_is_learnt_within_a_few_steps() -> None:
    """Attention reads all tokens before it."""
    costs = StepCosts()
    for step in range(100):
        costs.observe(0, 64, 64 * (0.008 + 0.000001 * 64 * step))
    assert costs.prefill_token_s == pytest.approx(0.0143, rel=0.05)


def test_a_prefill_of_a_few_tokens_says_nothing() -> None:
    costs = StepCosts()
    costs.observe(0, PART - 1, 1.0)
    assert costs.prefill_token_s == 0.0


@pytest.mark.parametrize(("share", "pays"), [(0.85, True), (0.95, False), (1.2, False)])
def test_mixed_steps_pay_if_they_save_a_tenth(share: float, pays: bool) -> None:
    costs = StepCosts()
    for _ in range(2):
        costs.observe(0, 100, 1.0)
        costs.observe(1, 0, 0.5)
    assert costs.mixing_pays(1, 100), "it is tried"
    costs.observe(1, 100, share * 1.5)
    assert costs.mixing_pays(1, 100) == pays
    for _ in range(256):
        assert costs.mixing_pays(1, 100) == pays
        costs.observe(0, 100, 1.0)
    assert costs.mixing_pays(1, 100), "and tried again"


TOKEN_S = 0.5


def costs_of(*steps: tuple[int, float], largest: int = 8) -> DecodeCosts:
    costs = DecodeCosts(largest)
    observe(costs, steps)
    return costs


def observe(costs: DecodeCosts, steps: Iterable[tuple[int, float]]) -> None:
    """These steps, and the last one of them until all are learnt."""
    for rows, seconds in (*steps, *(list(steps)[-1:] * 3)):
        costs.observe(rows, seconds)


def curve(costs: DecodeCosts, token_s: float = TOKEN_S) -> list[float]:
    found = costs.curve(token_s)
    assert found is not None
    return [round(found(rows), 6) for rows in range(costs.largest + 1)]


def with_drafts(costs: DecodeCosts, sizes: list[int], kept: int = 0, run: float = 0.0) -> list[float]:
    found = costs.draft_curve(TOKEN_S, 1, kept, run)
    assert found is not None
    return [found(rows) for rows in sizes]


@pytest.mark.parametrize(("rows", "expected"), [(1, 3.0), (3, 5.0), (4, 7.0), (8, 14.0), (80, 140.0)])
def test_larger_steps_cost_in_proportion(rows: int, expected: float) -> None:
    assert costs_of((2, 3.0), (4, 7.0)).seconds(rows) == pytest.approx(expected)


def test_one_fast_step_corrects_a_size_that_was_only_seen_slow_some_time_ago() -> None:
    costs = costs_of(*[(1, 10.0), (4, 60.0)] * 5, *[(1, 10.0)] * 24)
    assert costs.seconds(4) == pytest.approx(60.0)
    observe(costs, [(4, 12.0), (1, 10.0)])
    assert (costs.seconds(1), costs.seconds(4)) == pytest.approx((10.0, 12.0))


def test_sizes_stay_comparable_under_a_jittering_clock() -> None:
    rng = np.random.default_rng(1)
    costs = DecodeCosts(8)
    ratios: list[float] = []
    for _ in range(1000):
        for rows, seconds in ((1, 1.0), (8, 4.0)):
            costs.observe(rows, seconds * rng.lognormal(0.0, 0.2) * (5.0 if rng.random() < 0.1 else 1.0))
        ratios.append(costs.seconds(8) / costs.seconds(1))
    low, middle, high = np.quantile(ratios[4:], (0.01, 0.5, 0.99))
    assert 2.0 < low < 3.8 < middle < 4.3 < high < 8.0


def after_changes(slow: float, largest: int = 8) -> DecodeCosts:
    """Ten runs of six steps of one row, with a step of four rows before each: two steps are slow after a change."""
    costs = DecodeCosts(largest)
    for _ in range(10):
        costs.observe(4, slow + 0.8)
        for number in range(6):
            costs.observe(1, slow if number < 2 else 1.0)
    return costs


def test_steps_after_a_change_say_what_it_costs_and_nothing_of_their_size() -> None:
    costs = after_changes(3.0)
    assert costs.seconds(1) == pytest.approx(1.0)
    assert costs.way_back_s(1) == costs.change_s(1) == pytest.approx(2 * 2.0)
    assert costs.way_back_s(4) == 0.0, "it was not the last size"
    four = 3.8 / 3.0  # never seen settled
    assert with_drafts(costs, [1, 4]) == pytest.approx([1.0, 3.8])
    assert (curve(costs)[4], costs.seconds(4)) == pytest.approx((four, four))


def after(*runs: tuple[float, ...]) -> SizeChanges:
    """Runs of steps of one row, with another kind of step before each."""
    changes = SizeChanges()
    for run in runs:
        changes.interrupt()
        for seconds in run:
            changes.observe(1, seconds)
    return changes


SLOW, PLAIN = (3.0, 3.0, 1.0, 1.0), (1.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize(("slow", "share"), [(0, 0.0), (1, 0.0), (2, 0.0), (3, 2.0)])
def test_the_first_steps_after_a_change_must_agree(slow: int, share: float) -> None:
    """Four of four, or five of six."""
    assert after(*[SLOW] * slow, *[PLAIN] * (3 - slow)).share == share


def test_a_deeper_context_after_a_prefill_is_no_change() -> None:
    assert after(*[(seconds,) * 4 for seconds in (1.0, 2.0, 3.0, 4.0, 5.0)]).share == 0.0
