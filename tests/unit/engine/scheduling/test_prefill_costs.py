"""PrefillCosts: the cost of a prefill token, by its depth and the rows of its batch."""

from __future__ import annotations

import pytest

from jan_serve.engine.scheduling.prefill_costs import TILE, PrefillCosts

BASE_S = 0.005
CELL_S = {8: 3.2e-6, TILE: 1.1e-6, 512: 0.9e-6}
"""Of a 0.5 B model on two cores, by rows."""


def real(rows: int, depth: float) -> float:
    return BASE_S + CELL_S[rows] * depth


def learned(*seen: tuple[int, float], times: int = 20) -> PrefillCosts:
    costs = PrefillCosts()
    for _ in range(times):
        for rows, depth in seen:
            costs.observe(rows, depth, real(rows, depth))
    return costs


def test_costs_are_zero_before_the_first_measurement() -> None:
    assert PrefillCosts().base_s == 0.0
    assert PrefillCosts().token_s(512, 4000) == 0.0


@pytest.mark.parametrize("rows", [8, TILE, 512])
def test_measurements_near_the_start_and_far_from_it_predict_all_depths(rows: int) -> None:
    costs = learned((rows, 50), (rows, 3000))
    assert costs.base_s == pytest.approx(BASE_S, rel=0.05)
    for depth in (1000, 8000):
        assert costs.token_s(rows, depth) == pytest.approx(real(rows, depth), rel=0.05)


@pytest.mark.parametrize("rows", [8, TILE, 512])
def test_one_measurement_far_from_the_start_predicts_its_own_depth(rows: int) -> None:
    depth = 4000
    assert learned((rows, depth), times=1).token_s(rows, depth) == pytest.approx(real(rows, depth))


def test_untried_kinds_are_assumed_cheaper_than_fewer_rows() -> None:
    depth = 3000
    costs = learned((8, 50), (8, depth))
    assert costs.base_s < costs.token_s(512, depth) < costs.token_s(TILE, depth) < costs.token_s(8, depth)


def test_few_rows_are_assumed_more_expensive_than_measured_larger_batches() -> None:
    depth = 3000
    costs = learned((512, 50), (512, depth))
    assert costs.token_s(512, depth) < costs.token_s(TILE, depth) < costs.token_s(8, depth)


def test_one_slow_tile_is_forgotten() -> None:
    depth = 3000
    costs = learned((8, 50), (8, depth))
    costs.observe(TILE, depth, 0.05)
    assert costs.token_s(TILE, depth) > 2 * costs.token_s(8, depth)
    for _ in range(200):
        costs.observe(8, depth, real(8, depth))
    assert costs.token_s(TILE, depth) < costs.token_s(8, depth)


@pytest.mark.parametrize(("second_s", "then_s"), [(0.01, 0.01), (0.09, 0.06)])
def test_the_first_prompt_reads_the_weights_from_the_disk(second_s: float, then_s: float) -> None:
    costs = PrefillCosts()
    costs.observe(TILE, 0, 0.05)
    costs.observe(TILE, 0, second_s)
    assert costs.token_s(TILE, 0) == pytest.approx(then_s)
    costs.observe(TILE, 0, then_s / 2)
    assert costs.token_s(TILE, 0) == pytest.approx(then_s * 0.875), "as slowly as ever from then on"


def test_one_slow_step_changes_a_cost_by_a_quarter_at_most() -> None:
    depth = 3000
    costs = learned((8, 50), (8, depth))
    before = costs.token_s(8, depth)
    costs.observe(8, depth, 2 * before)
    assert before < costs.token_s(8, depth) <= 1.26 * before


def test_costs_are_never_negative() -> None:
    costs = PrefillCosts()
    for depth in (0, 3000):
        for rows in (8, TILE, 512):
            for token_s in (0.01, 0.0, 0.0):
                costs.observe(rows, depth, token_s)
                assert min(costs.base_s, costs.token_s(rows, depth)) >= 0.0
