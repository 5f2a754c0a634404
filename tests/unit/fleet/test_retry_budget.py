"""How many requests may be tried again."""

from __future__ import annotations

from jan_serve.fleet.retry_budget import ALWAYS, RetryBudget


def test_retries_are_a_share_of_requests_of_the_last_seconds() -> None:
    budget = RetryBudget()
    assert [budget.take(100.0) for _ in range(ALWAYS + 1)] == [True] * ALWAYS + [False]
    for _ in range(50):
        budget.count(105.0)
    assert [budget.take(105.5) for _ in range(11)] == [True] * 10 + [False]
    assert budget.take(200.0)
