"""Turns among clients and among requests: who runs next, and who makes way."""

from __future__ import annotations

import pytest

from jan_serve.engine.scheduling.scheduler import AdapterSlices
from jan_serve.engine.sequence import Sequence
from tests.unit.engine.scheduling.bench import Bench, make, prompt


def request_of(client: str, count: int = 1, *, request_id: int = 0, tokens: int = 4) -> list[Sequence]:
    """The sequences of one request, whose prompt no other request has."""
    first = make(prompt(request_id, tokens), request_id=request_id, client=client, n=count)
    more = [
        make(prompt(request_id, tokens), request_id=request_id, index=index, client=client, n=count)
        for index in range(1, count)
    ]
    for sequence in more:
        sequence.state = first.state
    return [first, *more]


def test_the_next_slot_is_for_the_client_with_the_fewest() -> None:
    bench = Bench(parallel=4)
    many = [request_of("a", request_id=number)[0] for number in range(8)]
    [other] = request_of("b", request_id=20)
    bench.wait(*many, other)
    assert bench.admit_all() == [many[0], other, many[1], many[2]]


def test_the_next_slot_of_a_client_is_for_its_request_with_the_fewest() -> None:
    bench = Bench(parallel=4)
    choices, [other] = request_of("a", 8, request_id=1), request_of("a", request_id=2)
    bench.wait(*choices, other)
    assert bench.admit_all()[1] is other


def test_requests_of_one_client_keep_their_order() -> None:
    bench = Bench(parallel=2)
    waiting = [request_of("a", request_id=number)[0] for number in range(6)]
    bench.wait(*waiting)
    served: list[Sequence] = []
    while admitted := bench.admit_all():
        served += admitted
        assert bench.scheduler.next_pause() is None
        bench.finish(bench.scheduler.running[0])
    assert served == waiting


@pytest.mark.parametrize("client", ["a", "b"])
def test_the_largest_share_makes_way_for_another_client_or_request(client: str) -> None:
    bench = Bench(parallel=4)
    choices = request_of("a", 8, request_id=1)
    bench.wait(*choices)
    running = bench.admit_all()
    assert len(running) == 4
    [other] = request_of(client, request_id=2)
    bench.wait(other)
    assert bench.admit() is None
    assert bench.scheduler.next_pause() is running[-1]


@pytest.mark.parametrize("parallel", [1, 2, 3, 8])
def test_making_way_ends_with_fair_shares(parallel: int) -> None:
    bench = Bench(parallel=parallel, capacity=1000)
    bench.wait(*request_of("a", 20, request_id=1))
    bench.admit_all()
    bench.wait(*(request_of("b", request_id=number)[0] for number in range(2, 20)))
    pauses = 0
    while (paused := bench.scheduler.next_pause()) is not None:
        pauses += 1
        bench.pause(paused)
        assert bench.admit_all(), "a pause is for somebody"
    shares = [sum(s.request.client == name for s in bench.scheduler.running) for name in "ab"]
    assert shares == [parallel - parallel // 2, parallel // 2]
    assert pauses == parallel // 2


def test_nobody_makes_way_where_that_gives_no_room() -> None:
    bench = Bench(parallel=4, capacity=40)
    bench.wait(*request_of("a", 4, request_id=1))
    bench.admit_all()
    bench.wait(*request_of("b", request_id=2, tokens=38))
    assert bench.scheduler.next_pause() is None


def test_the_latest_of_the_largest_share_is_preempted() -> None:
    bench = Bench(parallel=4)
    bench.wait(*request_of("a", 3, request_id=1))
    running = bench.admit_all()
    bench.wait(*request_of("b", request_id=2))
    bench.admit_all()
    assert bench.scheduler.victim() is running[-1]


def turns_of(turns: AdapterSlices[str], running: list[str], times: list[float]) -> str:
    return "".join(turns.take(running, now) for now in times)


def test_whoever_ends_gives_up_the_turn() -> None:
    turns: AdapterSlices[str] = AdapterSlices(1.0)
    assert turns_of(turns, ["a", "b"], [0, 0.1]) == "aa"
    assert turns_of(turns, ["b", "c"], [0.2, 0.3]) == "bb"


def test_no_set_waits_longer_than_a_slice_of_each_other() -> None:
    turns: AdapterSlices[int] = AdapterSlices(1.0)
    last = dict.fromkeys(range(5), 0.0)
    for step in range(200):
        now = step * 0.3
        key = turns.take(list(last), now)
        last[key] = now
        assert all(now - served <= 4 * (1.0 + 0.3) + 0.3 for served in last.values())
