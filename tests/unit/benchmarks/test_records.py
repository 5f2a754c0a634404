"""The measurement of records runs all parts, with the records and without."""

from __future__ import annotations

from benchmarks.records import by_turns, of_a_step, of_the_front


def test_works_take_turns() -> None:
    calls: list[str] = []
    by_turns(1, lambda: calls.append("a"), lambda: calls.append("b"), rounds=3)
    assert calls == ["a", "b"] * 3


def test_each_part_has_both_times() -> None:
    for cost in (*of_the_front(rounds=1, tokens=5), of_a_step(2, rounds=1, steps=5)):
        assert cost.without >= 0 and cost.recorded >= 0
