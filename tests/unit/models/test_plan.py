"""The schedule of a training run."""

from __future__ import annotations

from typing import Any

import pytest

from models.recipe.plan import Plan, reader_of

PLAN = Plan(
    total_tokens=1000, warmup_steps=10, cycle_shares=(0.5, 0.5), cycle_peaks=(1.0, 0.25), cooldown_share=0.5
)
LOW = PLAN.peak_rate * PLAN.final_rate_share


def test_it_warms_up() -> None:
    rates = [PLAN.rate(0, step) for step in range(12)]
    assert rates[:10] == sorted(rates[:10])
    assert 0 < rates[0] < rates[9] == rates[10] == PLAN.peak_rate


@pytest.mark.parametrize(
    ("seen", "rate"),
    [
        (249, PLAN.peak_rate),
        (375, (PLAN.peak_rate + LOW) / 2),
        (500, PLAN.peak_rate / 4),  # the second cycle begins at its own peak
        (749, PLAN.peak_rate / 4),
        (875, (PLAN.peak_rate / 4 + LOW) / 2),
        (1000, LOW),
        (1200, LOW),  # the last step may see more than was planned
    ],
)
def test_a_cycle_holds_its_peak_and_falls(seen: int, rate: float) -> None:
    assert PLAN.rate(seen, 100) == pytest.approx(rate)


def test_a_cycle_ends_low() -> None:
    assert PLAN.rate(499, 100) == pytest.approx(LOW, rel=0.01)


def test_the_second_stage_of_the_corpus_begins_with_the_second_cycle() -> None:
    assert [PLAN.is_late(seen) for seen in (0, 499, 500, 1000)] == [False, False, True, True]


def test_the_cycles_of_the_plan_fill_it() -> None:
    plan = Plan()
    assert sum(plan.cycle_shares) == pytest.approx(1)
    assert len(plan.cycle_shares) == len(plan.cycle_peaks)


@pytest.mark.parametrize(
    ("default", "text", "value"),
    [(1, "3", 3), (0.5, "2e-3", 0.002), ((0.5, 0.5), "0.2,0.3,0.5", (0.2, 0.3, 0.5))],
)
def test_options_are_read_like_their_defaults(default: object, text: str, value: object) -> None:
    assert reader_of(default)(text) == value


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("cycle_peaks", {"cycle_shares": (0.5, 0.5), "cycle_peaks": (1.0,)}),
        ("cycle_shares", {"cycle_shares": (0.5, 0.4), "cycle_peaks": (1.0, 0.5)}),
        ("cycle_shares", {"cycle_shares": (1.5, -0.5), "cycle_peaks": (1.0, 0.5)}),
        ("cooldown_share", {"cooldown_share": 0.0}),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused_by_field(field: str, fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^{field}: "):
        Plan(**fields)
