"""The circuit breaker: when it opens, for how long, and how it closes."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from jan_serve.fleet.breaker import MAX_OPEN_S, OPEN_S, Breaker


def breaker() -> Breaker:
    return Breaker(Random(1))


def fail(subject: Breaker, times: int, now: float = 0.0) -> None:
    for _ in range(times):
        subject.fail(now, subject.begin())


def test_three_failures_in_a_row_open_it_and_a_success_between_does_not() -> None:
    subject = breaker()
    fail(subject, 2)
    subject.succeed(0)
    fail(subject, 2)
    assert subject.admits(0)
    fail(subject, 1)
    assert not subject.admits(0)
    assert subject.state(0) == "open"


@pytest.mark.parametrize(
    ("outcomes", "is_open"), [("sfsfsfsfsf", True), ("ssfsfsfssf", False), ("sfsfsfsf", False)]
)
def test_half_of_ten_requests_open_it(outcomes: str, is_open: bool) -> None:
    subject = breaker()
    for outcome in outcomes:
        (subject.fail if outcome == "f" else subject.succeed)(1.0)
    assert (not subject.admits(1.0)) == is_open


def test_old_outcomes_do_not_count() -> None:
    late = breaker()
    for number in range(9):
        (late.fail if number % 2 else late.succeed)(0.0)
    late.fail(100.0)
    assert late.admits(100.0)


def test_after_the_pause_one_request_at_a_time_is_tried() -> None:
    subject = breaker()
    fail(subject, 3)
    assert not subject.admits(OPEN_S * 0.7)
    later = OPEN_S * 1.3
    assert subject.admits(later)
    subject.begin()
    assert not subject.admits(later)
    subject.succeed(later)
    assert subject.admits(later)
    assert subject.state(later) == "closed"


def test_each_failed_trial_doubles_the_pause_up_to_a_minute() -> None:
    subject = breaker()
    fail(subject, 3)
    now, pauses = 0.0, list[float]()
    for _ in range(7):
        pauses.append(subject.opens_in_s(now))
        now += pauses[-1]
        fail(subject, 1, now)
    for before, after in pairwise(pauses[:4]):
        assert 1.3 < after / before < 3.1
    assert max(pauses) <= MAX_OPEN_S * 1.2


def test_a_client_that_leaves_decides_nothing() -> None:
    subject = breaker()
    fail(subject, 3)
    later = 10.0
    subject.leave(subject.begin())
    assert subject.state(later) == "half-open"
    assert subject.admits(later)


def test_what_began_before_the_pause_neither_ends_a_trial_nor_is_one() -> None:
    subject = breaker()
    old = subject.begin()
    fail(subject, 3)
    later = OPEN_S * 1.3
    trial = subject.begin()
    subject.leave(old)
    assert not subject.admits(later)
    subject.fail(later, old)
    assert not subject.admits(later)
    assert subject.state(later) == "half-open"
    subject.fail(later, trial)
    assert subject.state(later) == "open"


def test_a_late_failure_of_an_old_request_does_not_prolong_the_pause() -> None:
    subject = breaker()
    fail(subject, 3)
    before = subject.opens_in_s(0.0)
    subject.fail(1.0)
    assert subject.opens_in_s(0.0) == before
