"""Attempts of a request, and the budget of retries."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from jan_serve.fleet.assignment import Assignment, Outcome
from jan_serve.fleet.attempts import (
    MAX_ASKED,
    MAX_REACHED,
    PATIENCE_S,
    RETRIES_ALWAYS,
    Attempts,
    Ending,
    RetryBudget,
)
from jan_serve.fleet.fleet import Fleet
from jan_serve.fleet.node import Role
from tests.unit.fleet.support import LONG, fleet_of, keys


def assigned(fleet: Fleet, *, streamed: bool = True, is_measured: bool = True) -> Assignment:
    for node in fleet:
        if is_measured:
            node.rate.observe(10_000.0, 10.0, streamed=True)
    return fleet.assign("m", keys(LONG), now=0.0, streamed=streamed)


def attempts() -> Attempts:
    return Attempts(RetryBudget(), 0.0)


def failed(assignment: Assignment, now: float = 1.0) -> Assignment:
    assignment.end(Outcome.FAILED, now)
    return assignment


@pytest.mark.parametrize(
    ("ending", "allowed"),
    [
        (Ending.UNREACHED, MAX_ASKED - 1),
        (Ending.RESET, MAX_REACHED - 1),
        (Ending.SILENT, MAX_REACHED - 1),
        (Ending.REFUSED, MAX_REACHED - 1),
        (Ending.FINAL, 0),
    ],
)
def test_how_often_a_request_goes_on(ending: Ending, allowed: int) -> None:
    tries, assignment = attempts(), failed(assigned(fleet_of(1)))
    went_on = [tries.may_go_on(ending, assignment, 1.0) for _ in range(allowed + 1)]
    assert went_on == [True] * allowed + [False]


@pytest.mark.parametrize(
    ("ending", "is_limited"),
    [(Ending.UNREACHED, False), (Ending.RESET, False), (Ending.SILENT, False), (Ending.REFUSED, True)],
)
def test_all_requests_that_a_node_had_when_it_ended_go_on(ending: Ending, is_limited: bool) -> None:
    fleet, budget = fleet_of(1), RetryBudget()
    stranded = [assigned(fleet) for _ in range(40)]
    went_on = [Attempts(budget, 1.0).may_go_on(ending, failed(each), 1.0) for each in stranded]
    assert (False in went_on) == is_limited


@pytest.mark.parametrize("ending", [Ending.RESET, Ending.SILENT, Ending.REFUSED])
def test_requests_to_a_node_that_fails_already_are_tried_again_within_the_budget(ending: Ending) -> None:
    fleet, budget = fleet_of(1), RetryBudget()
    failed(assigned(fleet), 0.0)
    went_on = [Attempts(budget, 1.0).may_go_on(ending, failed(assigned(fleet)), 1.0) for _ in range(40)]
    assert RETRIES_ALWAYS < went_on.count(True) < 20


def test_a_node_that_works_again_strands_again() -> None:
    fleet = fleet_of(1)
    failed(assigned(fleet), 1.0)
    assigned(fleet).end(Outcome.DONE, 2.0)
    assert failed(assigned(fleet), 3.0).is_stranded


def test_the_last_attempt_waits_to_its_end() -> None:
    tries, assignment = attempts(), assigned(fleet_of(2))
    assert tries.patience_s(assignment) == PATIENCE_S
    tries.may_go_on(Ending.UNREACHED, assignment, 0.0)
    tries.may_go_on(Ending.RESET, assignment, 0.0)
    assert tries.patience_s(assignment) == PATIENCE_S
    tries.may_go_on(Ending.RESET, assignment, 0.0)
    assert tries.patience_s(assignment) is None


UNTIMED = pytest.mark.parametrize("way", [{"streamed": False}, {"is_measured": False}])
"""Whole answers, and nodes that may load a model first."""


def looking(fleet: Fleet, assignment: Assignment) -> Callable[[float], float]:
    tries = attempts()
    tries.tried.append(assignment.node)
    assert tries.patience_s(assignment) == PATIENCE_S
    return lambda now: tries.next_look_s(assignment, PATIENCE_S, fleet, "m", Role.HYBRID, now)


@UNTIMED
def test_what_nobody_can_time_waits_while_its_node_gives_a_sign_of_life(way: dict[str, bool]) -> None:
    fleet = fleet_of(2)
    assignment = assigned(fleet, **way)
    next_look_s = looking(fleet, assignment)
    for now in range(50, 5000, 50):
        assert next_look_s(now) > 0
        assignment.node.note_open(1, 1, now)
    assert next_look_s(4950 + 59) == 1.0
    assert next_look_s(4950 + 60) == 0.0


def test_looks_end_at_any_time() -> None:
    """Also where the time that is left is less than the clock can tell."""
    draws, fleet = Random(1), fleet_of(2)
    for _ in range(2000):
        assignment = assigned(fleet, streamed=False)
        next_look_s = looking(fleet, assignment)
        now = assignment.node.lived_s = draws.uniform(0, 5000)
        now += draws.uniform(0, 5)
        looks = 0
        while left_s := next_look_s(now):
            now, looks = now + left_s, looks + 1
            assert looks < 3, "it looks for ever"
        assignment.end(Outcome.LEFT, now)


@UNTIMED
def test_a_node_that_denies_having_the_request_gives_no_sign_of_life(way: dict[str, bool]) -> None:
    fleet = fleet_of(2)
    assignment = assigned(fleet, **way)
    assignment.node.note_open(0, 1, 59.0)
    assert looking(fleet, assignment)(60.0) == 0.0


def test_health_is_no_sign_for_a_stream_that_should_have_begun() -> None:
    fleet = fleet_of(2)
    assignment = assigned(fleet)
    assignment.node.note_open(1, 1, 59.0)
    assert looking(fleet, assignment)(60.0) == 0.0


@pytest.mark.parametrize(("open_requests", "worked_s"), [(1, 90.0), (0, 5.0), (None, 5.0)])
def test_only_a_node_that_counts_the_request_works_on_it(open_requests: int | None, worked_s: float) -> None:
    assignment = fleet_of(1).assign("m", keys(LONG), now=5.0)
    assignment.node.note_open(open_requests, 1, 90.0)
    assert assignment.worked_s == worked_s


def test_an_answer_that_has_begun_is_not_missed() -> None:
    """A slow client still reads it, which the node need not know."""
    fleet = fleet_of(1)
    begun, other = assigned(fleet), assigned(fleet)
    begun.begin_answer(1.0)
    assert (begun.node.in_flight, begun.node.unanswered) == (2, 1)
    other.end(Outcome.LEFT, 2.0)
    begun.end(Outcome.DONE, 3.0)
    assert (begun.node.in_flight, begun.node.unanswered) == (0, 0)


def test_long_prompts_have_as_much_more_time() -> None:
    fleet = fleet_of(2)
    assignment = assigned(fleet)
    waiting = Assignment(assignment.node, keys(LONG), fleet.index, 0.0, streamed=True)
    assert waiting.expected_s > 0
    assert attempts().patience_s(waiting, 0.001) == pytest.approx(5 * waiting.expected_s)


def test_a_node_is_silent_from_its_last_byte_to_anybody_on() -> None:
    fleet = fleet_of(2)
    assignment = assigned(fleet)
    next_look_s = looking(fleet, assignment)
    assert next_look_s(20.0) == 40.0
    assignment.node.heard_s = 30.0
    assert next_look_s(60.0) == 30.0
    assert next_look_s(90.0) == 0.0


def test_a_silent_node_is_kept_while_there_is_no_other() -> None:
    fleet, tries = fleet_of(1), attempts()
    assignment = assigned(fleet)
    tries.tried.append(assignment.node)
    assert tries.next_look_s(assignment, 60.0, fleet, "m", Role.HYBRID, 1000.0) > 0


def test_retries_are_a_share_of_requests_of_the_last_seconds() -> None:
    budget = RetryBudget()
    assert [budget.take(100.0) for _ in range(RETRIES_ALWAYS + 1)] == [True] * RETRIES_ALWAYS + [False]
    for _ in range(50):
        budget.count(105.0)
    assert [budget.take(105.5) for _ in range(11)] == [True] * 10 + [False]
    assert budget.take(200.0)
