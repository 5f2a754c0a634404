"""How a node's load is counted, and what is learned from an answer."""

from __future__ import annotations

import pytest

from jan_serve.fleet.assignment import Outcome
from tests.unit.fleet.support import LONG, fleet_of, keys


def test_a_node_that_reports_less_cached_than_it_should_have_is_trusted_less() -> None:
    fleet = fleet_of(1)
    for _ in range(20):
        fleet.assign("m", keys(LONG), now=0.0).end(Outcome.DONE, 1.0, prompt_tokens=1725, cached_tokens=0)
    node = next(iter(fleet))
    assert node.trust < 0.2
    assert fleet.assign("m", keys(LONG), now=1.0).guess < 500
    assert (node.prompt_tokens, node.cached_tokens) == (20 * 1725, 0)


@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize("begun", [False, True])
def test_every_outcome_gives_back_what_was_counted_once(outcome: Outcome, begun: bool) -> None:
    fleet = fleet_of(1)
    assignment = fleet.assign("m", keys(LONG), now=0.0, streamed=True)
    node = assignment.node
    assert (node.in_flight, node.pending_tokens > 1000) == (1, True)
    if begun:
        assignment.begin_answer(0.5)
    for _ in range(2):
        assignment.end(outcome, 1.0)
        assert (node.in_flight, node.pending_tokens) == (0, 0.0)
    assert node.failures == (outcome is Outcome.FAILED)
    assert len(node.latencies) == (outcome is Outcome.DONE)


def test_failures_are_no_short_latencies() -> None:
    fleet = fleet_of(1, "min_observed_latency")
    fleet.assign("m", now=0.0).end(Outcome.FAILED, 0.001)
    assert next(iter(fleet)).mean_latency_s is None
