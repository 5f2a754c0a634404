"""Two servers on loopback, with workers that are dictionaries."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import msgspec
import pytest

from jan_serve.core.kv_transfer import PeerEndpoint, RemoteState
from jan_serve.errors import (
    InvalidRequest,
    InvalidState,
    PeerFailed,
)
from jan_serve.supervisor.kv_transfer.peer_links import TcpPeerLinks
from tests.unit.supervisor.kv_transfer.peers import SESSION, STATE, STORED, FakeWorker, until

pytestmark = pytest.mark.anyio
CALLER = "key"


@dataclass
class Side:
    links: TcpPeerLinks
    worker: FakeWorker = field(default_factory=FakeWorker)


@contextlib.asynccontextmanager
async def two_sides(keep_s: float = 60.0, patience_s: float = 5.0) -> AsyncGenerator[tuple[Side, Side]]:
    prefill = Side(TcpPeerLinks("127.0.0.1", keep_s=keep_s, patience_s=patience_s))
    decode = Side(TcpPeerLinks("127.0.0.1", keep_s=keep_s, patience_s=patience_s))
    try:
        yield prefill, decode
    finally:
        for side in (prefill, decode):
            await side.links.close()
            assert (side.links.open_connections, side.links.kept_states) == (0, 0)
        assert not prefill.worker.states


async def link(prefill: Side, decode: Side) -> None:
    of_prefill = await prefill.links.initialize(CALLER, "http://p", "http://d")
    of_decode = await decode.links.initialize(CALLER, "http://d", "http://p")
    await prefill.links.connect(CALLER, "http://d", of_decode)
    await decode.links.connect(CALLER, "http://p", of_prefill)


def keep(side: Side, session: int = SESSION) -> None:
    side.worker.states[5] = bytearray(STATE)
    side.links.bind(CALLER, side.links.keep(side.worker, 5), session)


async def fetch(decode: Side, session: int = SESSION) -> None:
    try:
        await decode.links.fetch(
            RemoteState(caller=CALLER, engine="http://p", session=session), decode.worker, STORED
        )
    except BaseException:
        decode.worker.drop_state(STORED)
        raise


async def test_a_state_moves_and_is_forgotten_where_it_came_from() -> None:
    async with two_sides() as (prefill, decode):
        await link(prefill, decode)
        keep(prefill)
        await fetch(decode)
        assert decode.worker.states == {STORED: STATE}
        assert not prefill.worker.states and not prefill.links.is_kept(CALLER, SESSION)
        await until(lambda: prefill.links.open_connections + decode.links.open_connections == 0)
        with pytest.raises(InvalidState, match="Nothing is kept here of session 7"):
            await fetch(decode)


async def test_links_are_made_in_any_order_and_more_than_once() -> None:
    async with two_sides() as (prefill, decode):
        await link(prefill, decode)
        await link(prefill, decode)
        of_decode = await decode.links.initialize(CALLER, "http://d", "http://p")
        of_prefill = await prefill.links.initialize(CALLER, "http://p", "http://d")
        await decode.links.connect(CALLER, "http://p", of_prefill)
        await prefill.links.connect(CALLER, "http://d", of_decode)
        keep(prefill)
        await fetch(decode)


async def test_who_is_not_linked_is_told() -> None:
    async with two_sides() as (prefill, decode):
        with pytest.raises(InvalidRequest, match="not linked with 'http://p'"):
            await fetch(decode)
        endpoint = await prefill.links.initialize(CALLER, "http://p", "http://d")
        with pytest.raises(InvalidRequest, match="p2p_initialize first"):
            await decode.links.connect(CALLER, "http://p", endpoint)


@pytest.mark.parametrize("wrong", ["key", "name", "port", "silent"])
async def test_a_peer_that_does_not_fit_is_not_connected(wrong: str) -> None:
    async with two_sides(patience_s=0.2) as (prefill, decode):
        endpoint = await prefill.links.initialize(CALLER, "http://p", "http://d")
        await decode.links.initialize(CALLER, "http://d", "http://p")
        if wrong == "name":
            endpoint = msgspec.structs.replace(endpoint, name="other")
        if wrong == "key":
            endpoint = msgspec.structs.replace(endpoint, key=b"x" * 32)
        async with contextlib.AsyncExitStack() as stack:
            if wrong in ("port", "silent"):
                server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
                await stack.enter_async_context(server)
                endpoint = PeerEndpoint(
                    "127.0.0.1", server.sockets[0].getsockname()[1], endpoint.name, endpoint.key
                )
                if wrong == "port":
                    await stack.aclose()
            with pytest.raises(PeerFailed):
                await decode.links.connect(CALLER, "http://p", endpoint)
        with pytest.raises(InvalidRequest, match="not linked"):
            await fetch(decode)
        await until(lambda: prefill.links.open_connections == 0)


async def test_a_dropped_link_is_closed_and_its_key_is_worth_nothing() -> None:
    async with two_sides() as (prefill, decode):
        await link(prefill, decode)
        keep(prefill)
        assert prefill.links.drop(CALLER, "http://d")
        assert not prefill.links.drop(CALLER, "http://d")
        with pytest.raises(PeerFailed, match="does not know the key"):
            await fetch(decode)
        assert decode.links.drop(CALLER, "http://p")
        with pytest.raises(InvalidRequest, match="not linked"):
            await fetch(decode)
        assert prefill.links.free(CALLER, SESSION)


async def test_another_key_has_no_use_of_a_link_and_cannot_disturb_it() -> None:
    async with two_sides() as (prefill, decode):
        await link(prefill, decode)
        keep(prefill)
        other = "another key"
        assert not prefill.links.is_kept(other, SESSION)
        assert not prefill.links.free(other, SESSION)
        assert not prefill.links.drop(other, "http://d")
        with pytest.raises(InvalidRequest, match="not linked with 'http://p'"):
            wanted = RemoteState(caller=other, engine="http://p", session=SESSION)
            await decode.links.fetch(wanted, decode.worker, STORED)
        await prefill.links.initialize(other, "http://p", "http://d")
        await fetch(decode)
        assert decode.worker.states == {STORED: STATE}


async def test_a_key_that_links_a_server_with_itself_finds_no_state_of_another_key() -> None:
    async with two_sides() as (prefill, decode):
        keep(prefill)
        endpoint = await prefill.links.initialize("another key", "http://p", "http://p")
        await decode.links.initialize("another key", "http://p", "http://p")
        await decode.links.connect("another key", "http://p", endpoint)
        wanted = RemoteState(caller="another key", engine="http://p", session=SESSION)
        with pytest.raises(InvalidState, match=f"Nothing is kept here of session {SESSION}"):
            await decode.links.fetch(wanted, decode.worker, STORED)
        assert prefill.links.is_kept(CALLER, SESSION)


async def test_a_lost_peer_is_an_error() -> None:
    async with two_sides() as (prefill, decode):
        await link(prefill, decode)
        keep(prefill)
        await prefill.links.close()
        with pytest.raises(PeerFailed):
            await fetch(decode)
        assert not decode.worker.states


async def test_a_cancelled_fetch_closes_its_connection() -> None:
    async with two_sides() as (prefill, decode):
        await link(prefill, decode)
        keep(prefill)
        task = asyncio.create_task(fetch(decode))
        await until(lambda: bool(decode.worker.states))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert decode.links.open_connections == 0 and not decode.worker.states
        await until(lambda: prefill.links.open_connections == 0)
        assert prefill.links.is_kept(CALLER, SESSION)


async def test_a_server_on_loopback_links_with_this_machine_only() -> None:
    async with two_sides() as (prefill, decode):
        endpoint = await prefill.links.initialize(CALLER, "http://p", "http://d")
        await decode.links.initialize(CALLER, "http://d", "http://p")
        for host in ("192.0.2.1", "example.com", "::ffff:192.0.2.1"):
            with pytest.raises(InvalidRequest, match="same machine only"):
                await decode.links.connect(CALLER, "http://p", msgspec.structs.replace(endpoint, host=host))


@pytest.mark.parametrize("name", ["http://[", "http://[::1", "http://[x]/"])
async def test_a_name_that_is_no_url_makes_no_link(name: str) -> None:
    links = TcpPeerLinks("0.0.0.0")
    with pytest.raises(InvalidRequest, match="local_engine_id: not a URL") as refused:
        await links.initialize(CALLER, name, "http://d")
    assert refused.value.param == "local_engine_id"
    with pytest.raises(InvalidRequest, match="no link with"):
        await links.connect(CALLER, "http://d", PeerEndpoint("127.0.0.1", 9, "link", bytes(32)))
