"""Fetching a state from a peer whose records are scripted."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.errors import EngineCrashed, InvalidState, JanServeError, Overloaded, PeerFailed
from jan_serve.supervisor.kv_transfer.peer_connection import PeerConnection
from jan_serve.supervisor.kv_transfer.peer_messages import (
    Done,
    Fetch,
    Found,
    PeerAnswer,
    PeerRequest,
    Ping,
    Refused,
    Release,
    decode_request,
    encode,
)
from jan_serve.supervisor.kv_transfer.state_pull import ping, pull
from tests.unit.supervisor.kv_transfer.peers import SESSION, STORED, FakeWorker

pytestmark = pytest.mark.anyio


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
