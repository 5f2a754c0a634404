"""States that are kept for peers, served and fetched."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import pytest

from jan_serve.errors import EngineCrashed, InvalidState, JanServeError, Overloaded, PeerFailed
from jan_serve.supervisor.kv_transfer import state_transfer
from jan_serve.supervisor.kv_transfer.peer_connection import (
    PART_BYTES,
    Done,
    Fetch,
    Found,
    PeerAnswer,
    PeerConnection,
    PeerRequest,
    Ping,
    Refused,
    Release,
    connect,
    decode_answer,
    decode_request,
    encode,
)
from jan_serve.supervisor.kv_transfer.state_transfer import KeptStates, Link, StateServer, ping, pull
from tests.unit.supervisor.kv_transfer.peers import SESSION, STATE, STORED, FakeWorker, until

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


KEYS = {"http://a": bytes(range(32)), "http://b": bytes(32), "http://other": b"o" * 32}
CALLERS = {"http://a": "key", "http://b": "key", "http://other": "other key"}


@dataclass
class Serving:
    server: StateServer
    kept: KeptStates
    worker: FakeWorker
    port: int

    opened: list[PeerConnection] = field(default_factory=list[PeerConnection])

    async def connected(self, name: str = "http://a") -> PeerConnection:
        connection = await connect("127.0.0.1", self.port, name, KEYS[name], connect_s=5.0, patience_s=5.0)
        self.opened.append(connection)
        return connection

    def keep(self, data: bytes = STATE, session: int = SESSION) -> None:
        self.worker.states[5] = bytearray(data)
        self.kept.bind(self.kept.add(self.worker, 5), ("key", session))


@pytest.fixture
async def serving() -> AsyncGenerator[Serving]:
    kept = KeptStates(60.0)
    links = {name: Link(name, key, CALLERS[name]) for name, key in KEYS.items() if name in CALLERS}
    server = StateServer(kept, links.get, patience_s=5.0)
    serving = Serving(server, kept, FakeWorker(), await server.listen("127.0.0.1"))
    yield serving
    for connection in serving.opened:
        await connection.close()
    await server.close()
    assert server.open_connections == 0
    kept.clear()


async def ask(connection: PeerConnection, request: PeerRequest) -> PeerAnswer:
    await connection.send(encode(request))
    body = await connection.receive()
    assert body is not None
    return decode_answer(body)


async def test_it_listens_once(serving: Serving) -> None:
    assert await serving.server.listen("127.0.0.1") == serving.port
    await serving.server.close()
    with pytest.raises(PeerFailed, match="cannot be reached"):
        await serving.connected()
    serving.port = await serving.server.listen("127.0.0.1")
    assert await ask(await serving.connected(), Ping()) == Done()


@pytest.mark.parametrize("size", [1, PART_BYTES, PART_BYTES + 1, len(STATE)])
async def test_a_state_comes_in_parts_as_often_as_it_is_asked_for(serving: Serving, size: int) -> None:
    serving.keep(STATE[:size])
    connection = await serving.connected()
    for _ in range(2):
        assert await ask(connection, Fetch(SESSION)) == Found(size)
        data = b""
        while len(data) < size:
            part = await connection.receive()
            assert part and len(part) <= PART_BYTES
            data += part
        assert data == STATE[:size]
    assert await ask(connection, Ping()) == Done()


async def test_a_released_state_is_dropped(serving: Serving) -> None:
    serving.keep()
    connection = await serving.connected()
    for _ in range(2):  # the second time there is none
        assert await ask(connection, Release(SESSION)) == Done()
        assert not serving.worker.states
    answer = await ask(connection, Fetch(SESSION))
    assert answer == Refused(
        "invalid_state", {"message": f"Nothing is kept here of session {SESSION}.", "param": None}
    )


async def test_a_worker_that_does_not_read_is_a_refusal(serving: Serving) -> None:
    serving.keep()
    serving.worker.fail = EngineCrashed("gone")
    connection = await serving.connected()
    answer = await ask(connection, Fetch(SESSION))
    assert isinstance(answer, Refused) and answer.code == EngineCrashed.code
    assert await ask(connection, Ping()) == Done()


async def test_a_worker_that_ends_under_its_state_ends_the_connection(serving: Serving) -> None:
    serving.keep()
    serving.worker.fail, serving.worker.fail_at = EngineCrashed("gone"), PART_BYTES
    connection = await serving.connected()
    assert await ask(connection, Fetch(SESSION)) == Found(len(STATE))
    assert await connection.receive() == STATE[:PART_BYTES]
    assert await connection.receive() is None
    await until(lambda: serving.server.open_connections == 0)


async def test_what_is_no_request_ends_the_connection(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    connection = await serving.connected()
    await connection.send(b"\xff")
    assert await connection.receive() is None
    await until(lambda: serving.server.open_connections == 0)
    assert "asked something that is not known here" in caplog.text


async def test_only_the_connections_of_a_dropped_peer_are_closed(serving: Serving) -> None:
    dropped, stays = await serving.connected("http://a"), await serving.connected("http://b")
    for connection in (dropped, stays):
        assert await ask(connection, Ping()) == Done()
    serving.server.drop("http://a")
    with contextlib.suppress(PeerFailed):
        assert await dropped.receive() is None
    assert await ask(stays, Ping()) == Done()
    await until(lambda: serving.server.open_connections == 1)


async def test_one_connection_more_than_the_most_is_closed(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that have not proved a key count too."""
    monkeypatch.setattr(state_transfer, "MAX_CONNECTIONS", 2)
    first = await serving.connected()
    _, silent = await asyncio.open_connection("127.0.0.1", serving.port)
    await until(lambda: serving.server.open_connections == 2)
    with pytest.raises(PeerFailed):
        await serving.connected()
    assert await ask(first, Ping()) == Done()
    silent.close()
    await silent.wait_closed()
    await until(lambda: serving.server.open_connections == 1)
    assert await ask(await serving.connected(), Ping()) == Done()


async def test_a_close_ends_transfers(serving: Serving) -> None:
    serving.keep()
    connection = await serving.connected()
    assert await ask(connection, Fetch(SESSION)) == Found(len(STATE))
    await serving.server.close()
    received = 0
    with contextlib.suppress(PeerFailed):
        while (part := await connection.receive()) is not None:
            received += len(part)
    assert received < len(STATE)


class Scripted(PeerConnection):
    """A peer that sends these records, then closes."""

    def __init__(self, *records: bytes | PeerAnswer) -> None:
        self.asked: list[PeerRequest] = []
        self._records = [record if isinstance(record, bytes) else encode(record) for record in records]

    async def send(self, body: bytes) -> None:
        self.asked.append(decode_request(body))

    async def receive(self) -> bytes | None:
        return self._records.pop(0) if self._records else None


async def test_a_state_is_stored_part_by_part_and_then_released() -> None:
    peer, taker = Scripted(Found(7), b"abc", b"d", b"efg", Done()), FakeWorker()
    await pull(peer, SESSION, taker, STORED)
    assert taker.states == {STORED: b"abcdefg"}
    assert peer.asked == [Fetch(SESSION), Release(SESSION)]


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([], "closed the connection"),
        ([Done()], "did not say how large its cache is"),
        ([Found(0)], "did not say how large its cache is"),
        ([Found(-1)], "did not say how large its cache is"),
        ([Found((1 << 40) + 1)], "did not say how large its cache is"),
        ([b"\xff"], "answered something that is not known here"),
        ([Found(4)], "broke off in the middle of its cache"),
        ([Found(4), b"ab"], "broke off in the middle of its cache"),
        ([Found(4), b"ab", b""], "broke off in the middle of its cache"),
    ],
)
async def test_a_peer_that_does_not_send_a_state(records: list[bytes | PeerAnswer], words: str) -> None:
    with pytest.raises(PeerFailed, match=words):
        await pull(Scripted(*records), SESSION, FakeWorker(), STORED)


@pytest.mark.parametrize("fail_at", [0, 2])
async def test_a_worker_that_does_not_take_it_releases_nothing(fail_at: int) -> None:
    peer = Scripted(Found(4), b"ab", b"cd", Done())
    with pytest.raises(EngineCrashed):
        await pull(peer, SESSION, FakeWorker(fail=EngineCrashed("gone"), fail_at=fail_at), STORED)
    assert peer.asked == [Fetch(SESSION)]


@pytest.mark.parametrize("last", [(), (Found(3),), (Refused("overloaded", {"message": "no"}),)])
async def test_a_state_that_arrived_counts_though_the_peer_keeps_its_own(
    last: tuple[PeerAnswer, ...], caplog: pytest.LogCaptureFixture
) -> None:
    peer, taker = Scripted(Found(2), b"ab", *last), FakeWorker()
    await pull(peer, SESSION, taker, STORED)
    assert taker.states == {STORED: b"ab"}
    assert f"cannot release session {SESSION} at a peer" in caplog.text


@pytest.mark.parametrize(
    ("code", "payload", "kind", "words"),
    [
        ("invalid_state", {"message": "another model"}, InvalidState, "^another model$"),
        ("overloaded", {"message": "full", "retry_after": "never"}, Overloaded, "^full$"),
        ("overloaded", {"message": "x" * 100_000}, Overloaded, "^x{300}…$"),
        ("invalid_state", {}, PeerFailed, "refused, and did not say why"),
        ("invalid_state", {"message": 7}, PeerFailed, "refused, and did not say why"),
        ("model_not_found", {}, PeerFailed, "refused, and did not say why"),
        ("context_length_exceeded", {"message": "long"}, PeerFailed, "refused: long$"),
        ("nonsense", {"message": "x" * 100_000}, PeerFailed, "refused: x{300}…$"),
    ],
)
async def test_what_a_refusal_of_a_peer_becomes(
    code: str, payload: dict[str, Any], kind: type[JanServeError], words: str
) -> None:
    with pytest.raises(JanServeError, match=words) as failed:
        await pull(Scripted(Refused(code, payload)), SESSION, FakeWorker(), STORED)
    assert type(failed.value) is kind
    assert failed.value.param is None, "fields of a request that is not this one"


async def test_a_ping_is_answered() -> None:
    peer = Scripted(Done())
    await ping(peer)
    assert peer.asked == [Ping()]


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([], "closed the connection"),
        ([Found(3)], "answered something else than it was asked"),
        ([Refused("invalid_state", {"message": "no"})], "^no$"),
    ],
)
async def test_a_ping_that_is_not_answered(records: list[PeerAnswer], words: str) -> None:
    with pytest.raises(JanServeError, match=words):
        await ping(Scripted(*records))
