"""States kept for peers: session numbers, freeing and expiry."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jan_serve.errors import EngineCrashed
from jan_serve.supervisor.kv_transfer.state_transfer import KeptStates

pytestmark = pytest.mark.anyio

LONG_S = 3600.0
SEVEN = ("key", 7)


class Holder:
    """A worker that only counts what is dropped."""

    def __init__(self) -> None:
        self.dropped: list[int] = []
        self.any_dropped = asyncio.Event()

    async def ask(self, request: Any) -> Any:
        raise EngineCrashed("fake")

    def drop_state(self, state: int) -> None:
        self.dropped.append(state)
        self.any_dropped.set()


async def test_a_state_is_found_once_it_is_bound() -> None:
    states, holder = KeptStates(LONG_S), Holder()
    handle = states.add(holder, 5)
    assert states.find(SEVEN) is None
    states.bind(handle, SEVEN)
    kept = states.find(SEVEN)
    assert kept is not None
    assert (kept.owner, kept.state, kept.session) == (holder, 5, SEVEN)
    states.clear()


@pytest.mark.parametrize("by_session", [True, False])
async def test_a_state_is_dropped_in_its_worker_once(by_session: bool) -> None:
    states, holder = KeptStates(LONG_S), Holder()
    handle = states.add(holder, 5)
    states.bind(handle, SEVEN)
    assert states.free(SEVEN) if by_session else states.drop(handle)
    assert not states.free(SEVEN)
    assert not states.drop(handle)
    assert states.find(SEVEN) is None
    assert (holder.dropped, len(states)) == ([5], 0)


async def test_a_state_has_one_session_number_the_latest() -> None:
    states, holder = KeptStates(LONG_S), Holder()
    handle = states.add(holder, 5)
    for session in (SEVEN, SEVEN, ("key", 8)):
        states.bind(handle, session)
        assert states.find(session) is not None
    assert states.find(SEVEN) is None
    assert holder.dropped == []
    states.clear()


async def test_the_same_number_of_another_key_is_another_session() -> None:
    states, holder = KeptStates(LONG_S), Holder()
    states.bind(states.add(holder, 5), SEVEN)
    assert states.find(("other", 7)) is None
    assert not states.free(("other", 7))
    states.bind(states.add(holder, 6), ("other", 7))
    assert holder.dropped == []
    states.clear()


async def test_a_session_number_that_is_used_again_drops_the_state_before() -> None:
    states, holder = KeptStates(LONG_S), Holder()
    first, second = states.add(holder, 5), states.add(holder, 6)
    states.bind(first, SEVEN)
    states.bind(second, SEVEN)
    kept = states.find(SEVEN)
    assert kept is not None
    assert kept.state == 6
    assert not states.drop(first)
    assert states.find(SEVEN) is kept, "the number belongs to the later state"
    states.clear()
    assert holder.dropped == [5, 6]


async def test_a_state_that_is_gone_takes_no_session_number() -> None:
    states, holder = KeptStates(LONG_S), Holder()
    gone, there = states.add(holder, 5), states.add(holder, 6)
    states.bind(there, SEVEN)
    states.drop(gone)
    states.bind(gone, SEVEN)
    kept = states.find(SEVEN)
    assert kept is not None
    assert kept.state == 6
    states.clear()


@pytest.mark.parametrize("bound", [True, False])
async def test_what_no_peer_fetches_expires(bound: bool, caplog: pytest.LogCaptureFixture) -> None:
    states, holder = KeptStates(0.001), Holder()
    handle = states.add(holder, 5)
    if bound:
        states.bind(handle, SEVEN)
    await holder.any_dropped.wait()
    assert (holder.dropped, len(states), states.find(SEVEN)) == ([5], 0, None)
    assert "no peer fetched" in caplog.text


async def test_what_is_cleared_does_not_expire_later(caplog: pytest.LogCaptureFixture) -> None:
    states, holder, last = KeptStates(0.001), Holder(), Holder()
    states.add(holder, 5)
    states.clear()
    states.add(last, 6)
    await last.any_dropped.wait()
    assert holder.dropped == [5]
    assert caplog.text.count("no peer fetched") == 1
