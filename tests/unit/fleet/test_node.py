"""A node's own figures."""

from __future__ import annotations

import pytest

from jan_serve.fleet.node import MAX_LATENCIES, State, hit_rate
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
    for state in State:
        subject.state = state
        assert subject.accepts(0.0) is (state is State.HEALTHY)
    subject.state = State.HEALTHY
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
