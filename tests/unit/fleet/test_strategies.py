"""Which node gets a request."""

from __future__ import annotations

from collections import Counter

import pytest

from jan_serve.errors import Unavailable
from jan_serve.fleet.assignment import Outcome
from jan_serve.fleet.node import Node, NodeState
from jan_serve.fleet.strategies import STRATEGIES, StrategyName
from tests.unit.fleet.support import LONG, fleet_of, keys


def test_a_prompt_goes_where_its_beginning_is_and_leaves_when_waiting_costs_more() -> None:
    fleet = fleet_of(10)
    first = fleet.assign("m", keys(LONG), now=0.0, streamed=True)
    first.begin_answer(1.0)
    first.end(Outcome.DONE, 2.0)
    again = fleet.assign("m", keys(LONG + "more"), now=3.0, streamed=True)
    assert again.node is first.node
    assert again.guess > 1000
    again.node.pending_tokens += 50_000
    assert fleet.assign("m", keys(LONG + "more"), now=3.0, streamed=True).node is not first.node


def test_a_new_conversation_goes_where_fewer_tokens_come_although_nobody_computes_just_then() -> None:
    fleet = fleet_of(2)
    crowded = next(iter(fleet))
    for second in range(20):
        crowded.demand.add(20_000.0, float(second))
    chosen = [fleet.choose("m", keys(f"{number} {LONG}"), now=20.0) for number in range(10)]
    assert crowded not in chosen
    cached = fleet.assign_to(crowded, keys(LONG), now=20.0, streamed=True)
    cached.begin_answer(20.0)
    cached.end(Outcome.DONE, 20.0)
    assert fleet.choose("m", keys(LONG + "more"), now=20.0) is crowded, "what it has is still there"


def test_one_hot_prompt_does_not_pile_up_on_its_holder() -> None:
    fleet = fleet_of(20)
    for _ in range(200):
        fleet.assign("m", keys(LONG), now=0.0, streamed=True)
    loads = [node.in_flight for node in fleet]
    assert max(loads) <= 3 * sum(loads) / len(loads)


def test_speed_is_learned_and_slow_nodes_get_less() -> None:
    fleet = fleet_of(2)
    slow, fast = fleet
    for number in range(60):
        assignment = fleet.assign("m", keys(f"{number} {LONG}"), now=float(number), streamed=True)
        took = 5.0 if assignment.node is slow else 0.2
        assignment.begin_answer(number + took)
        assignment.end(Outcome.DONE, number + took)
    assert fast.requests > 4 * slow.requests
    assert fast.rate.tokens_per_s > 3 * slow.rate.tokens_per_s


def test_min_expected_latency_prefers_few_requests_for_the_speed() -> None:
    fleet = fleet_of(3, "min_expected_latency", (1.0, 3.0, None))
    for _ in range(50):
        fleet.assign("m", now=0.0)
    assert [node.in_flight for node in fleet] == [10, 30, 10]


def test_min_observed_latency_gives_a_new_node_its_first_request() -> None:
    fleet = fleet_of(2, "min_observed_latency")
    fleet.assign("m", now=0.0).end(Outcome.DONE, 5.0)
    second = fleet.assign("m", now=5.0)
    second.end(Outcome.DONE, 6.0)
    assert {node.requests for node in fleet} == {1}
    assert fleet.assign("m", now=6.0).node is second.node


def test_random_follows_the_speeds() -> None:
    fleet = fleet_of(2, "random", (9.0, 1.0))
    for _ in range(2000):
        fleet.assign("m", now=0.0).end(Outcome.DONE, 1.0)
    first, second = fleet
    assert 7 < first.requests / second.requests < 12


@pytest.mark.parametrize("name", STRATEGIES)
def test_no_strategy_chooses_a_node_that_takes_no_requests(name: StrategyName) -> None:
    fleet = fleet_of(6, name)
    nodes = list(fleet)
    for node, state in zip(
        nodes, (NodeState.LOST, NodeState.SLEEPING, NodeState.DRAINING, NodeState.JOINING), strict=False
    ):
        fleet.set_state(node, state)
    for _ in range(3):
        nodes[4].breaker.fail(0.0)
    for number in range(30):
        assert fleet.assign("m", keys(f"{number}{LONG}"), now=0.0).node is nodes[5]
    assert fleet.assign("m", now=0.0, tried=[nodes[5]]).node is nodes[4], (
        "with nothing else left, it fails open"
    )
    with pytest.raises(Unavailable, match=r"lost.*sleeping.*draining.*and 3 more"):
        fleet.assign("m", now=0.0, tried=nodes[4:])


@pytest.mark.parametrize("name", STRATEGIES)
def test_ties_go_to_all(name: StrategyName) -> None:
    fleet = fleet_of(5, name)
    chosen = Counter(fleet.choose("m", now=0.0).url for _ in range(300))
    assert len(chosen) == 5


def test_the_last_choice_of_a_burst_looks_at_few_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = fleet_of(3000)
    asked: list[Node] = []
    accepts = Node.accepts

    def counted(node: Node, now: float) -> bool:
        asked.append(node)
        return accepts(node, now)

    monkeypatch.setattr(Node, "accepts", counted)
    for _ in range(100):
        fleet.choose("m", keys(LONG), now=0.0)
    assert len(asked) / 100 < 40
