"""A node, its speed and its demand."""

from __future__ import annotations

import pytest

from jan_serve.fleet.node import (
    FIRST_TOKENS_PER_S,
    MAX_LATENCIES,
    WINDOW_S,
    Demand,
    NodeState,
    WorkRate,
    hit_rate,
)
from tests.unit.fleet.support import LONG, fleet_of, keys, node


def test_the_mean_is_of_the_last_latencies() -> None:
    subject = node()
    assert subject.mean_latency_s is None
    subject.latencies.extend([100.0] * MAX_LATENCIES + [2.0] * MAX_LATENCIES)
    assert subject.mean_latency_s == 2.0


def test_an_unknown_speed_weighs_one() -> None:
    subject = node()
    assert subject.weight == 1.0
    subject.speed = 3.0
    assert subject.weight == 3.0


def test_only_a_healthy_node_with_a_closed_breaker_gets_requests() -> None:
    subject = node()
    for state in NodeState:
        subject.state = state
        assert subject.accepts(0.0) is (state is NodeState.HEALTHY)
    subject.state = NodeState.HEALTHY
    for _ in range(3):
        subject.breaker.begin()
        subject.breaker.fail(0.0)
    assert not subject.accepts(0.0)


def test_the_name_has_no_scheme() -> None:
    assert node(7).name == "n7"


def test_a_restart_ends_an_epoch_and_begins_one() -> None:
    subject = node()
    before = subject.cache
    subject.forget_cache()
    assert before.is_over and not subject.cache.is_over
    assert subject.cache.node is subject


def test_the_hit_rate_is_over_tokens_not_over_nodes() -> None:
    busy, idle = node(1), node(2)
    assert hit_rate([busy, idle]) is None
    busy.prompt_tokens, busy.cached_tokens = 900, 450
    idle.prompt_tokens, idle.cached_tokens = 100, 0
    assert hit_rate([busy, idle]) == 0.45


def test_a_node_is_silent_while_its_oldest_streamed_request_waits_and_nobody_gets_anything() -> None:
    fleet = fleet_of(1)
    found = next(iter(fleet))
    fleet.assign("m", keys(LONG), now=0.0)
    assert found.silent_s(1000.0) == 0.0
    first = fleet.assign("m", keys(LONG), now=0.0, streamed=True)
    due = first.expected_s
    assert due > 0
    assert (found.silent_s(due / 2), found.silent_s(due + 7)) == (0.0, pytest.approx(7))
    found.heard_s = 100.0
    assert found.silent_s(104.0) == 4.0
    first.begin_answer(104.0)
    assert found.silent_s(1000.0) == 0.0


def observed(
    rate: WorkRate, tokens: float, seconds: float, times: int = 300, *, streamed: bool = True
) -> WorkRate:
    for _ in range(times):
        rate.observe(tokens, seconds, streamed=streamed)
    return rate


def test_a_rate_converges_to_what_is_observed() -> None:
    rate = WorkRate()
    assert rate.tokens_per_s == FIRST_TOKENS_PER_S and not rate.is_measured
    observed(rate, 1000, 4.0)
    assert rate.tokens_per_s == pytest.approx(250, rel=0.01)
    assert rate.is_measured


def test_short_prompts_weigh_little() -> None:
    rate = observed(WorkRate(), 1000, 1.0)
    rate.observe(1, 0.5, streamed=True)
    assert rate.tokens_per_s == pytest.approx(1000, rel=0.02)


def test_a_new_node_counts_as_somewhat_better_than_the_average() -> None:
    average = observed(WorkRate(), 1000, 2.0)
    assert WorkRate(average).tokens_per_s == pytest.approx(1.5 * average.tokens_per_s)
    assert WorkRate(average, 4.0).tokens_per_s == pytest.approx(6 * average.tokens_per_s)


def test_the_average_learns_from_all_nodes() -> None:
    average = WorkRate()
    observed(WorkRate(average), 1000, 1.0)
    before = average.tokens_per_s
    observed(WorkRate(average), 1000, 10.0)
    assert average.tokens_per_s < before


def test_whole_answers_count_until_the_first_streamed_one() -> None:
    rate = observed(WorkRate(), 100, 10.0, 5, streamed=False)
    assert rate.tokens_per_s < 100
    observed(rate, 1000, 1.0)
    learned = rate.tokens_per_s
    observed(rate, 100, 10.0, streamed=False)
    assert rate.tokens_per_s == learned


@pytest.mark.parametrize(("tokens", "seconds"), [(0.0, 0.0), (-5.0, -1.0), (1e9, 0.0)])
def test_impossible_observations_leave_a_positive_rate(tokens: float, seconds: float) -> None:
    rate = observed(WorkRate(), tokens, seconds, 1000)
    assert 0 < rate.tokens_per_s < float("inf")


@pytest.mark.parametrize("relative", [0.0, -1.0, 1e9])
def test_a_speed_of_any_size_is_bounded(relative: float) -> None:
    assert 0 < WorkRate(WorkRate(), relative).tokens_per_s <= 1.5e3 * FIRST_TOKENS_PER_S


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
