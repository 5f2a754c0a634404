"""Which node gets a request, and how loads are counted."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from jan_serve.errors import ModelNotFound, Unavailable
from jan_serve.fleet.assignment import Outcome
from jan_serve.fleet.fleet import Fleet
from jan_serve.fleet.node import Node, Role, State
from jan_serve.fleet.pool import Pool
from jan_serve.fleet.prompt_keys import PromptKeys, prompt_keys
from jan_serve.fleet.strategies import STRATEGIES, StrategyName


def fleet_of(count: int, name: StrategyName = "prefix", speeds: tuple[float | None, ...] = ()) -> Fleet:
    fleet = Fleet(name, Random(5))
    for number in range(count):
        speed = speeds[number] if speeds else None
        node = fleet.add(f"http://n{number}", Role.HYBRID, ["m"], speed, 0.0)
        fleet.set_state(node, State.HEALTHY)
    return fleet


def keys(text: str) -> PromptKeys:
    return prompt_keys(b"salt", "m", [text.encode()])


LONG = "some words that repeat " * 300


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


def test_one_hot_prompt_does_not_pile_up_on_its_holder() -> None:
    fleet = fleet_of(20)
    for _ in range(200):
        fleet.assign("m", keys(LONG), now=0.0, streamed=True)
    loads = [node.in_flight for node in fleet]
    assert max(loads) <= 3 * sum(loads) / len(loads)


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


def test_failures_are_no_short_latencies() -> None:
    fleet = fleet_of(1, "min_observed_latency")
    fleet.assign("m", now=0.0).end(Outcome.FAILED, 0.001)
    assert next(iter(fleet)).mean_latency_s is None


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
    for node, state in zip(nodes, (State.LOST, State.SLEEPING, State.DRAINING, State.JOINING), strict=False):
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


def test_unknown_models_and_roles_without_nodes() -> None:
    fleet = fleet_of(1)
    with pytest.raises(ModelNotFound):
        fleet.assign("other", now=0.0)
    with pytest.raises(Unavailable, match="No prefill node"):
        fleet.assign("m", now=0.0, role=Role.PREFILL)
    with pytest.raises(Unavailable, match="proxy-url"):
        Fleet("prefix", Random(1)).assign(None, now=0.0)


def test_a_renewed_node_changes_models_and_role_and_keeps_its_counts() -> None:
    fleet = fleet_of(2)
    assignment = fleet.assign("m", now=0.0)
    node = assignment.node
    assert fleet.add(node.url, Role.HYBRID, ["n", "n"], 2.0, 1.0) is node
    assert (node.models, node.in_flight, node.speed) == (("n",), 1, 2.0)
    assert fleet.choose("n", now=0.0) is node
    assert fleet.choose("m", now=0.0) is not node
    fleet.add(node.url, Role.DECODE, ["n"], None, 1.0)
    assert fleet.choose("n", now=0.0, role=Role.DECODE) is node
    assert sorted(fleet.models(0.0)) == ["m", "n"]
    fleet.remove(node.url)
    assert fleet.models(0.0) == ["m"]
    assignment.end(Outcome.DONE, 2.0)


@pytest.mark.parametrize(
    ("first", "second", "is_new"),
    [
        ((1, 10.0), (1, 20.0), False),
        ((1, 10.0), (2, 1.0), True),
        ((1, 10.0), (1, 3.0), True),
        ((None, None), (1, 1.0), False),
    ],
)
def test_a_restarted_server_is_noticed(
    first: tuple[int | None, float | None], second: tuple[int | None, float | None], is_new: bool
) -> None:
    fleet = fleet_of(1)
    node = next(iter(fleet))
    fleet.note_start(node, *first)
    cache = node.cache
    assert fleet.note_start(node, *second) == is_new
    assert (node.cache is not cache) == is_new


def test_the_ring_gives_every_proxy_the_same_order_and_moves_little() -> None:
    nodes = list(fleet_of(20))
    one, two = Pool(), Pool()
    for node in nodes:
        one.add(node)
    for node in reversed(nodes):
        two.add(node)
    rng = Random(1)
    points = [rng.getrandbits(64) for _ in range(500)]
    before = [next(one.at(point)) for point in points]
    assert before == [next(two.at(point)) for point in points]
    one.remove(nodes[3])
    after = [next(one.at(point)) for point in points]
    assert all(new is old for new, old in zip(after, before, strict=True) if old is not nodes[3])
    assert len(one) == 19
    assert nodes[3] not in one


def test_a_pool_survives_any_order_of_leaving() -> None:
    nodes = list(fleet_of(30))
    for seed in range(5):
        pool, left = Pool(), list(nodes)
        for node in nodes:
            pool.add(node)
        Random(seed).shuffle(left)
        while left:
            pool.remove(left.pop())
            assert set(pool) == set(left)


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
