"""What is asked of a node of late."""

from __future__ import annotations

import pytest

from jan_serve.fleet.demand import WINDOW_S, Demand


def test_a_steady_stream_of_prompts_is_its_tokens_a_second() -> None:
    demand = Demand()
    for second in range(1000, 2000):
        demand.add(50.0, float(second))
    assert demand.tokens_per_s(1999.5) == pytest.approx(50.0, rel=0.01)


def test_it_fades_and_does_not_come_back() -> None:
    demand = Demand()
    assert demand.tokens_per_s(1e9) == 0.0
    demand.add(6000.0, 1e9)
    assert demand.tokens_per_s(1e9) == pytest.approx(6000.0 / WINDOW_S)
    assert demand.tokens_per_s(1e9 + WINDOW_S) == pytest.approx(6000.0 / WINDOW_S / 2.71828, rel=1e-4)
    assert demand.tokens_per_s(2e9) == 0.0
