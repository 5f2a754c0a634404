"""What a step takes by its size: what is remembered, and what is supposed of sizes that have not come."""

from __future__ import annotations

import pytest

from jan_serve.engine.drafting.step_costs import StepCosts

TOKEN_S = 0.5


def curve(times: StepCosts, token_s: float = TOKEN_S) -> list[float]:
    found = times.curve(token_s)
    assert found is not None
    return found.round(6).tolist()


def test_nothing_is_known_at_first() -> None:
    assert StepCosts(8).curve(1.0) is None


def test_sizes_between_lie_on_a_line_and_those_above_cost_less_than_now_and_more_than_in_a_prefill() -> None:
    times = StepCosts(8)
    for _ in range(100):
        times.observe(2, 3.0, TOKEN_S)
        times.observe(4, 7.0, TOKEN_S)
    assert curve(times) == pytest.approx(
        [3.0, 3.0, 3.0, 5.0, 7.0, *(7.0 + i * (TOKEN_S * 7.0 / 4) ** 0.5 for i in range(1, 5))], rel=0.01
    )


def test_the_first_time_that_a_size_comes_counts_more_than_what_was_supposed() -> None:
    times = StepCosts(8)
    times.observe(2, 4.0, TOKEN_S)
    supposed = curve(times)[4]
    times.observe(4, supposed * 1.4, TOKEN_S)
    assert supposed * 1.2 < curve(times)[4] < supposed * 1.4


def test_a_step_up_between_two_sizes_is_kept() -> None:
    times = StepCosts(16)
    for _ in range(50):
        for size, seconds in ((8, 80.0), (9, 105.0), (12, 108.0)):
            times.observe(size, seconds, TOKEN_S)
    found = curve(times)
    assert (found[8], found[9], found[12]) == pytest.approx((80.0, 105.0, 108.0), rel=0.01)


def test_what_slows_all_sizes_moves_those_that_do_not_come_too() -> None:
    times = StepCosts(8)
    times.observe(1, 10.0, TOKEN_S)
    times.observe(4, 16.0, TOKEN_S)
    for _ in range(60):
        times.observe(1, 15.0, TOKEN_S)
    found = curve(times)
    assert found[1] == pytest.approx(15.0, rel=0.01)
    assert 16.0 < found[4] <= 24.0


def test_one_step_that_was_held_up_says_little() -> None:
    times = StepCosts(4)
    for _ in range(20):
        times.observe(1, 10.0, TOKEN_S)
    times.observe(1, 1000.0, TOKEN_S)
    assert curve(times)[1] < 13.0


def test_a_size_that_has_not_come_for_long_is_tried_again() -> None:
    times = StepCosts(4)
    times.observe(4, 100.0, TOKEN_S)
    for _ in range(600):
        times.observe(1, 1.0, TOKEN_S)
    assert curve(times)[4] == pytest.approx(1.0 + 3 * TOKEN_S**0.5, rel=0.01)


@pytest.mark.parametrize(("size", "seconds"), [(0, 1.0), (9, 1.0), (3, 0.0)])
def test_what_tells_nothing_is_not_counted(size: int, seconds: float) -> None:
    times = StepCosts(8)
    times.observe(size, seconds, TOKEN_S)
    assert times.curve(1.0) is None
