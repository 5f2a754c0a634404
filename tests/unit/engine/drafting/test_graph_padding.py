"""How long steps are kept at the size of a captured graph."""

from __future__ import annotations

from jan_serve.engine.drafting.graph_padding import GraphPadding
from jan_serve.engine.scheduling.step_costs import StepCosts


def costs_of(*, change: float) -> StepCosts:
    """One row takes 1 s and four 1.25 s, the first two steps of a size `change` times more. The latest had four."""
    costs = StepCosts()
    for _ in range(5):
        for rows, seconds in ((1, 1.0), (4, 1.25)):
            for number in range(4):
                costs.observe(rows, 0, seconds * (1.0 + change * (number < 2)))
    return costs


def kept(padding: GraphPadding, steps: int) -> list[int]:
    return [padding.rows(1) for _ in range(steps)]


def test_a_size_is_kept_for_as_long_as_drafts_have_repaid_it() -> None:
    padding = GraphPadding(costs_of(change=2.0))
    assert kept(padding, 1) == [1], "nothing is gained yet"
    padding.accept(1)
    assert kept(padding, 5) == [4, 4, 4, 1, 1]


def test_more_streams_than_the_size_has_rows_end_it() -> None:
    padding = GraphPadding(costs_of(change=2.0))
    padding.rows(1)
    padding.accept(3)
    assert padding.rows(5) == 5
    assert padding.rows(1) == 1
