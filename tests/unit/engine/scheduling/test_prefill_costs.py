"""PrefillCosts: what a token of a prefill takes, by its place and by the rows of its batch."""

from __future__ import annotations

import pytest

from jan_serve.engine.scheduling.prefill_costs import TILE, CachePosition, PrefillCosts

BASE_S = 0.005
CELL_S = {8: 3.2e-6, TILE: 1.1e-6, 512: 0.9e-6}
"""Of a 0.5 B model on two cores, by rows."""


def real(rows: int, place: CachePosition) -> float:
    return BASE_S + CELL_S[rows] * (place.depth if rows < TILE else place.cells)


def learned(*seen: tuple[int, CachePosition], times: int = 20) -> PrefillCosts:
    costs = PrefillCosts()
    for _ in range(times):
        for rows, place in seen:
            costs.observe(rows, place, real(rows, place))
    return costs


def test_nothing_is_known_before_anything_was_seen() -> None:
    assert PrefillCosts().base_s == 0.0
    assert PrefillCosts().token_s(512, CachePosition(4000, 4000)) == 0.0


@pytest.mark.parametrize("rows", [8, TILE, 512])
def test_what_was_learnt_near_the_beginning_and_far_from_it_holds_everywhere(rows: int) -> None:
    costs = learned((rows, CachePosition(50, 50)), (rows, CachePosition(3000, 4000)))
    assert costs.base_s == pytest.approx(BASE_S, rel=0.05)
    for place in (CachePosition(1000, 1500), CachePosition(8000, 12000)):
        assert costs.token_s(rows, place) == pytest.approx(real(rows, place), rel=0.05)


@pytest.mark.parametrize("rows", [8, TILE, 512])
def test_one_measurement_far_from_the_beginning_is_right_where_it_was_made(rows: int) -> None:
    place = CachePosition(4000, 5000)
    assert learned((rows, place), times=1).token_s(rows, place) == pytest.approx(real(rows, place))


def test_few_rows_look_at_their_own_sequence_and_tiles_at_all_cells() -> None:
    costs = learned(
        (8, CachePosition(50, 50)), (8, CachePosition(3000, 9000)), (TILE, CachePosition(3000, 9000))
    )
    assert costs.token_s(8, CachePosition(3000, 16000)) == costs.token_s(8, CachePosition(3000, 3000))
    assert costs.token_s(TILE, CachePosition(3000, 16000)) > costs.token_s(TILE, CachePosition(3000, 3000))


def test_what_was_not_tried_is_supposed_to_be_better_than_fewer_rows() -> None:
    place = CachePosition(3000, 3000)
    costs = learned((8, CachePosition(50, 50)), (8, place))
    assert costs.base_s < costs.token_s(512, place) < costs.token_s(TILE, place) < costs.token_s(8, place)


def test_few_rows_are_supposed_to_be_worse_than_what_was_seen_without_streams() -> None:
    place = CachePosition(3000, 3000)
    costs = learned((512, CachePosition(50, 50)), (512, place))
    assert costs.token_s(512, place) < costs.token_s(TILE, place) < costs.token_s(8, place)


def test_what_held_up_a_tile_once_is_forgotten() -> None:
    place = CachePosition(3000, 3000)
    costs = learned((8, CachePosition(50, 50)), (8, place))
    costs.observe(TILE, place, 0.05)
    assert costs.token_s(TILE, place) > 2 * costs.token_s(8, place)
    for _ in range(200):
        costs.observe(8, place, real(8, place))
    assert costs.token_s(TILE, place) < costs.token_s(8, place)


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


def test_one_slow_step_moves_what_is_known_by_a_quarter_at_most() -> None:
    place = CachePosition(3000, 3000)
    costs = learned((8, CachePosition(50, 50)), (8, place))
    before = costs.token_s(8, place)
    costs.observe(8, place, 2 * before)
    assert before < costs.token_s(8, place) <= 1.26 * before


def test_costs_are_never_negative() -> None:
    costs = PrefillCosts()
    for place in (CachePosition(0, 0), CachePosition(3000, 3000)):
        for rows in (8, TILE, 512):
            for token_s in (0.01, 0.0, 0.0):
                costs.observe(rows, place, token_s)
                assert min(costs.base_s, costs.token_s(rows, place)) >= 0.0
