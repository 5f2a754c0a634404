"""Who waits, in which order, and how a waiter leaves."""

from __future__ import annotations

import pytest

from jan_serve.core.models.model_source import ModelSource
from jan_serve.errors import Unavailable
from jan_serve.supervisor.models.lease_queue import LeaseQueue

pytestmark = pytest.mark.anyio

A, B = ModelSource(name="a", path="/a"), ModelSource(name="b", path="/b")
NEW_A = ModelSource(name="a", path="/a", revision=(2,))


async def test_waiters_are_taken_by_source_in_the_order_of_arrival() -> None:
    queue = LeaseQueue[str]()
    first, other, second, replaced = (queue.join(source) for source in (A, B, A, NEW_A))
    assert queue.sources() == (A, B, NEW_A)
    assert (queue.waiting("a"), queue.waiting("b"), queue.waiting("c"), len(queue)) == (3, 1, 0, 4)
    assert queue.take(A) == [first.granted, second.granted]
    assert queue.sources() == (B, NEW_A), "another revision of the file is another source"
    assert queue.take(A) == []
    assert queue.take(NEW_A) + queue.take(B) == [replaced.granted, other.granted]
    assert len(queue) == 0


async def test_a_cancelled_waiter_gets_no_grant() -> None:
    queue = LeaseQueue[str]()
    gone, waiting = queue.join(A), queue.join(A)
    gone.granted.cancel()
    assert queue.take(A) == [waiting.granted]


async def test_leaving_twice_or_after_a_grant_has_no_effect() -> None:
    queue = LeaseQueue[str]()
    leaving, waiting = queue.join(A), queue.join(A)
    queue.leave(leaving)
    queue.leave(leaving)
    assert queue.take(A) == [waiting.granted]
    queue.leave(waiting)
    assert len(queue) == 0


async def test_each_rejected_waiter_gets_an_error_of_its_own() -> None:
    queue = LeaseQueue[str]()
    first, second, other = (queue.join(source) for source in (A, A, B))
    queue.refuse(A, Unavailable("later", retry_after=3.0))
    errors = [waiter.granted.exception() for waiter in (first, second)]
    assert [str(error) for error in errors] == ["later", "later"]
    assert errors[0] is not errors[1], "tracebacks of two requests must not mix"
    assert not other.granted.done() and queue.sources() == (B,)
