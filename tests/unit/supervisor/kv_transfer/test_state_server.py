"""StateServer: what a peer gets over a connection, and what ends it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import pytest

from jan_serve.errors import EngineCrashed, PeerFailed
from jan_serve.supervisor.kv_transfer import state_server
from jan_serve.supervisor.kv_transfer.kept_states import KeptStates
from jan_serve.supervisor.kv_transfer.peer_connection import PeerConnection, connect
from jan_serve.supervisor.kv_transfer.peer_messages import (
    PART_BYTES,
    Done,
    Fetch,
    Found,
    PeerAnswer,
    PeerRequest,
    Ping,
    Refused,
    Release,
    decode_answer,
    encode,
)
from jan_serve.supervisor.kv_transfer.state_server import StateServer
from tests.unit.supervisor.kv_transfer.peers import SESSION, STATE, FakeWorker, until

pytestmark = pytest.mark.anyio

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
    server = StateServer(kept, KEYS.get, CALLERS.get, patience_s=5.0)
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


async def test_a_link_of_another_key_finds_and_releases_nothing(serving: Serving) -> None:
    serving.keep()
    connection = await serving.connected("http://other")
    refused = await ask(connection, Fetch(SESSION))
    assert refused == Refused(
        "invalid_state", {"message": f"Nothing is kept here of session {SESSION}.", "param": None}
    )
    assert await ask(connection, Release(SESSION)) == Done()
    assert serving.worker.states
    assert await ask(await serving.connected(), Fetch(SESSION)) == Found(len(STATE))


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
    monkeypatch.setattr(state_server, "MAX_CONNECTIONS", 2)
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
