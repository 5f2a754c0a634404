"""PrefillCosts: the cost of a prefill token, by its position and the rows of its batch."""

from __future__ import annotations

import pytest

from jan_serve.engine.scheduling.prefill_costs import TILE, CachePosition, PrefillCosts

BASE_S = 0.005
CELL_S = {8: 3.2e-6, TILE: 1.1e-6, 512: 0.9e-6}
"""Of a 0.5 B model on two cores, by rows."""


def real(rows: int, position: CachePosition) -> float:
    return BASE_S + CELL_S[rows] * (position.depth if rows < TILE else position.cells)


def learned(*seen: tuple[int, CachePosition], times: int = 20) -> PrefillCosts:
    costs = PrefillCosts()
    for _ in range(times):
        for rows, position in seen:
            costs.observe(rows, position, real(rows, position))
    return costs


def test_costs_are_zero_before_the_first_measurement() -> None:
    assert PrefillCosts().base_s == 0.0
    assert PrefillCosts().token_s(512, CachePosition(4000, 4000)) == 0.0


@pytest.mark.parametrize("rows", [8, TILE, 512])
def test_measurements_near_the_start_and_far_from_it_predict_all_positions(rows: int) -> None:
    costs = learned((rows, CachePosition(50, 50)), (rows, CachePosition(3000, 4000)))
    assert costs.base_s == pytest.approx(BASE_S, rel=0.05)
    for position in (CachePosition(1000, 1500), CachePosition(8000, 12000)):
        assert costs.token_s(rows, position) == pytest.approx(real(rows, position), rel=0.05)


@pytest.mark.parametrize("rows", [8, TILE, 512])
def test_one_measurement_far_from_the_start_predicts_its_own_position(rows: int) -> None:
    position = CachePosition(4000, 5000)
    assert learned((rows, position), times=1).token_s(rows, position) == pytest.approx(real(rows, position))


def test_few_rows_read_their_own_sequence_and_tiles_read_all_cells() -> None:
    costs = learned(
        (8, CachePosition(50, 50)), (8, CachePosition(3000, 9000)), (TILE, CachePosition(3000, 9000))
    )
    assert costs.token_s(8, CachePosition(3000, 16000)) == costs.token_s(8, CachePosition(3000, 3000))
    assert costs.token_s(TILE, CachePosition(3000, 16000)) > costs.token_s(TILE, CachePosition(3000, 3000))


def test_untried_kinds_are_assumed_cheaper_than_fewer_rows() -> None:
    position = CachePosition(3000, 3000)
    costs = learned((8, CachePosition(50, 50)), (8, position))
    assert (
        costs.base_s
        < costs.token_s(512, position)
        < costs.token_s(TILE, position)
        < costs.token_s(8, position)
    )


def test_few_rows_are_assumed_more_expensive_than_measured_larger_batches() -> None:
    position = CachePosition(3000, 3000)
    costs = learned((512, CachePosition(50, 50)), (512, position))
    assert costs.token_s(512, position) < costs.token_s(TILE, position) < costs.token_s(8, position)


def test_one_slow_tile_is_forgotten() -> None:
    position = CachePosition(3000, 3000)
    costs = learned((8, CachePosition(50, 50)), (8, position))
    costs.observe(TILE, position, 0.05)
    assert costs.token_s(TILE, position) > 2 * costs.token_s(8, position)
    for _ in range(200):
        costs.observe(8, position, real(8, position))
    assert costs.token_s(TILE, position) < costs.token_s(8, position)


@pytest.mark.parametrize(("second_s", "then_s"), [(0.01, 0.01), (0.09, 0.06)])
def test_the_first_prompt_reads_the_weights_from_the_disk(second_s: float, then_s: float) -> None:
    costs = PrefillCosts()
    costs.observe(TILE, CachePosition(), 0.05)
    costs.observe(TILE, CachePosition(), second_s)
    assert costs.token_s(TILE, CachePosition()) == pytest.approx(then_s)
    costs.observe(TILE, CachePosition(), then_s / 2)
    assert costs.token_s(TILE, CachePosition()) == pytest.approx(then_s * 0.875), (
        "as slowly as ever from then on"
    )


def test_one_slow_step_changes_a_cost_by_a_quarter_at_most() -> None:
    position = CachePosition(3000, 3000)
    costs = learned((8, CachePosition(50, 50)), (8, position))
    before = costs.token_s(8, position)
    costs.observe(8, position, 2 * before)
    assert before < costs.token_s(8, position) <= 1.26 * before


def test_costs_are_never_negative() -> None:
    costs = PrefillCosts()
    for position in (CachePosition(0, 0), CachePosition(3000, 3000)):
        for rows in (8, TILE, 512):
            for token_s in (0.01, 0.0, 0.0):
                costs.observe(rows, position, token_s)
                assert min(costs.base_s, costs.token_s(rows, position)) >= 0.0
