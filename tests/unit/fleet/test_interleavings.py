"""Requests at nodes that fail and recover, begun and ended in any order: what is counted is given back, a node that has
failed gets one trial at a time, and none is lost for ever.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from jan_serve.fleet.assignment import Assignment, Outcome
from tests.unit.fleet.support import LONG, fleet_of, keys

_LONGEST_PAUSE_S = 120.0
SENT = keys(LONG)


@pytest.mark.parametrize("seed", range(int(os.environ.get("INTERLEAVINGS", "100"))))
def test_loads_are_given_back_and_trials_are_single(seed: int) -> None:
    draws = Random(seed)
    fleet = fleet_of(2)
    nodes = list(fleet)
    running: list[tuple[Assignment, bool]] = []
    now = 0.0
    for _ in range(60):
        now += draws.choice((0.0, 0.1, 1.0, 6.0))
        if draws.random() < 0.5:
            node = draws.choice(nodes)
            is_trial = node.breaker.state(now) == "half-open"
            if not node.accepts(now):
                continue
            made = fleet.assign_to(node, SENT, now=now, streamed=draws.random() < 0.5)
            trials = [each for each, trial in running if trial and each.node is made.node]
            assert not (is_trial and trials), f"two trials at once, seed {seed}"
            running.append((made, is_trial))
        elif running:
            made, _ = running.pop(draws.randrange(len(running)))
            if draws.random() < 0.5:
                made.begin_answer(now)
            made.end(draws.choices(list(Outcome), (2, 5, 1, 2))[0], now)
            if made.node.breaker.state(now) == "closed":
                running = [(each, trial and each.node is not made.node) for each, trial in running]
    for made, _ in running:
        made.end(Outcome.LEFT, now)
    assert [(node.in_flight, node.pending_tokens) for node in nodes] == [(0, 0.0)] * 2
    assert all(node.breaker.admits(now + _LONGEST_PAUSE_S) for node in nodes), f"lost for ever, seed {seed}"
