"""Requests in DistServe, and the links between prefill and decode nodes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from random import Random
from typing import Any

import pytest

from jan_serve.fleet.breaker import Breaker
from jan_serve.fleet.node import Node, NodeState, Role, WorkRate
from jan_serve.http.errors import HttpError
from jan_serve.proxy import distserve as links_module
from jan_serve.proxy.distserve import PairLinks
from jan_serve.proxy.upstream.connection import NodeFailure
from jan_serve.proxy.upstream.node_address import NodeNetworks
from jan_serve.proxy.upstream.node_client import NodeClient
from tests.support.servers.fake_nodes import FakeNode, Received, fake_nodes, reply, running_proxy, sending

pytestmark = pytest.mark.anyio

TCP, RDMA, NVLINK = 1, 2, 3
INFO, INITIALIZE, CONNECT, DROP, FREE = (
    f"/distserve/{name}"
    for name in ("engine_info", "p2p_initialize", "p2p_connect", "p2p_drop_connect", "free_cache")
)


def serving_links(name: str, layout: object = None) -> FakeNode:
    """A node that agrees to everything. Its layout is JSON in JSON, as LMDeploy answers it."""
    info = json.dumps({"tp_size": 1, "name": name}) if layout is None else layout
    offer = {"status": 1, "engine_endpoint_info": f"engine {name}", "kvtransfer_endpoint_info": f"kv {name}"}
    routes = {
        INFO: sending(reply(info)),
        INITIALIZE: sending(reply(offer)),
        **{path: sending(reply({"status": 1})) for path in (CONNECT, DROP, FREE)},
    }
    return FakeNode(name, routes=routes)


def node_of(fake: FakeNode, role: Role, state: NodeState = NodeState.HEALTHY) -> Node:
    return Node(fake.url, role, ("m1",), None, Breaker(Random(1)), WorkRate(), state=state)


class Pair:
    """A prefill and a decode node that listen, and links over them."""

    def __init__(self, fakes: tuple[FakeNode, ...], client: NodeClient, protocol: int = TCP) -> None:
        self.fakes = prefill, decode = fakes
        self.prefill, self.decode = node_of(prefill, Role.PREFILL), node_of(decode, Role.DECODE)
        self.links = PairLinks(client, protocol)

    def paths(self) -> list[tuple[str, str]]:
        return [(fake.name, call.path) for fake in self.fakes for call in fake.calls]

    def bodies(self, path: str) -> list[Any]:
        """Bodies that both nodes got, the prefill node's first."""
        return [call.json() for fake in self.fakes for call in fake.calls if call.path == path]


@pytest.fixture
async def client() -> AsyncGenerator[NodeClient]:
    made = NodeClient(NodeNetworks(), key="key")
    yield made
    made.close()


async def test_a_link_tells_each_node_what_the_other_offers(client: NodeClient) -> None:
    async with fake_nodes(serving_links("p"), serving_links("d")) as fakes:
        pair = Pair(fakes, client)
        assert not pair.links.are_linked(pair.prefill, pair.decode)
        await pair.links.connect(pair.prefill, pair.decode)
        assert pair.links.are_linked(pair.prefill, pair.decode)
        assert pair.links.has(pair.prefill) and pair.links.has(pair.decode)
        assert [path for _, path in pair.paths()] == [INFO, INITIALIZE, CONNECT] * 2
        assert {fake.calls[0].headers["authorization"] for fake in pair.fakes} == {"Bearer key"}
        first, second = pair.bodies(INITIALIZE)
        assert (first["local_engine_id"], first["remote_engine_id"]) == (pair.prefill.url, pair.decode.url)
        assert (first["local_engine_config"]["name"], first["remote_engine_config"]["name"]) == ("p", "d")
        assert (second["local_engine_config"]["name"], second["remote_engine_config"]["name"]) == ("d", "p")
        assert [(body["remote_engine_id"], body["remote_engine_endpoint_info"]) for body in pair.bodies(CONNECT)] == [
            (pair.decode.url, "engine d"),
            (pair.prefill.url, "engine p"),
        ]  # fmt: skip
        calls = len(pair.paths())
        await pair.links.connect(pair.prefill, pair.decode)
        assert len(pair.paths()) == calls


@pytest.mark.parametrize(
    ("protocol", "rdma", "nvlink"),
    [(TCP, None, None), (RDMA, {"with_gdr": True, "link_type": 2}, None), (NVLINK, None, {})],
)
async def test_the_configuration_is_that_of_the_protocol(
    client: NodeClient, protocol: int, rdma: Any, nvlink: Any
) -> None:
    async with fake_nodes(serving_links("p"), serving_links("d")) as fakes:
        pair = Pair(fakes, client, protocol)
        await pair.links.connect(pair.prefill, pair.decode)
        for body in pair.bodies(INITIALIZE):
            assert (body["protocol"], body["rdma_config"], body["nvlink_config"]) == (protocol, rdma, nvlink)


async def test_all_who_wait_share_one_link_and_one_may_leave(client: NodeClient) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()
    info = reply({"tp_size": 1})

    async def held(request: Received, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await answer.wait()
        writer.write(info)

    prefill = serving_links("p")
    prefill.routes[INFO] = held
    async with fake_nodes(prefill, serving_links("d")) as fakes:
        pair = Pair(fakes, client)
        waiting = [asyncio.create_task(pair.links.connect(pair.prefill, pair.decode)) for _ in range(3)]
        await asked.wait()
        waiting[0].cancel()
        answer.set()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError, type(None), type(None)]
        assert len(pair.bodies(CONNECT)) == 2


NESTED = "[" * 5000


@pytest.mark.parametrize(
    ("path", "answer", "words"),
    [
        (INFO, reply("nothing", 500), "/distserve/engine_info with status 500"),
        (INFO, reply("not json"), "answers /distserve/engine_info"),
        (INFO, reply([1]), "answers /distserve/engine_info"),
        (INFO, reply(NESTED), "answers /distserve/engine_info"),
        (INFO, reply(NESTED.encode()), "answers /distserve/engine_info"),
        (INFO, reply({"tp_size": 2}), "has another tp_size"),
        (
            INITIALIZE,
            reply({"status": 2, "message": "no room"}),
            "refuses /distserve/p2p_initialize: no room",
        ),
        (INITIALIZE, reply({"status": 2, "message": 7}), r"p2p_initialize \(status 200\)"),
        (CONNECT, reply({"status": 1}, 403), r"refuses /distserve/p2p_connect \(status 403\)"),
        (CONNECT, reply(b"<html>"), r"refuses /distserve/p2p_connect \(status 200\)"),
    ],
    ids=range(10),
)
async def test_what_a_node_answers_is_not_trusted(
    client: NodeClient, path: str, answer: bytes, words: str
) -> None:
    decode = serving_links("d")
    decode.routes[path] = sending(answer)
    async with fake_nodes(serving_links("p"), decode) as fakes:
        pair = Pair(fakes, client)
        with pytest.raises(NodeFailure, match=words):
            await pair.links.connect(pair.prefill, pair.decode)
        assert not pair.links.has(pair.decode)
        decode.routes[path] = serving_links("d").routes[path]
        await pair.links.connect(pair.prefill, pair.decode)
        assert pair.links.has(pair.decode)


async def test_a_node_that_does_not_answer_is_no_link(
    client: NodeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links_module, "LINK_S", 0.05)

    async def silent(request: Received, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    decode = serving_links("d")
    decode.routes[INITIALIZE] = silent
    async with fake_nodes(serving_links("p"), decode) as fakes:
        pair = Pair(fakes, client)
        with pytest.raises(NodeFailure, match=r"was not linked within 0\.05 s"):
            await pair.links.connect(pair.prefill, pair.decode)


async def test_a_link_ends_with_the_start_of_either_node(client: NodeClient) -> None:
    async with fake_nodes(serving_links("p"), serving_links("d")) as fakes:
        pair = Pair(fakes, client)
        await pair.links.connect(pair.prefill, pair.decode)
        pair.decode.forget_cache()
        assert not pair.links.are_linked(pair.prefill, pair.decode)
        await pair.links.connect(pair.prefill, pair.decode)
        assert pair.links.are_linked(pair.prefill, pair.decode)
        assert len(pair.bodies(CONNECT)) == 4


async def test_every_healthy_pair_is_linked_and_the_failed_ones_are_named(client: NodeClient) -> None:
    fakes = [serving_links(name) for name in ("p", "d", "bad", "asleep", "hybrid")]
    fakes[2].routes[CONNECT] = sending(reply({"status": 2, "message": "no"}))
    async with fake_nodes(*fakes):
        prefill, decode, bad, asleep, hybrid = (
            node_of(fake, role, state)
            for fake, role, state in zip(
                fakes,
                (Role.PREFILL, Role.DECODE, Role.DECODE, Role.DECODE, Role.HYBRID),
                (
                    NodeState.HEALTHY,
                    NodeState.HEALTHY,
                    NodeState.HEALTHY,
                    NodeState.SLEEPING,
                    NodeState.HEALTHY,
                ),
                strict=True,
            )
        )
        links = PairLinks(client, TCP)
        with pytest.raises(HttpError) as raised:
            await links.connect_all([prefill, decode, bad, asleep, hybrid])
        message = raised.value.problem.message
        assert message.startswith("1 of 2 pairs are not linked. ")
        assert bad.name in message and decode.name not in message
        assert [links.has(node) for node in (decode, bad, asleep, hybrid)] == [True, False, False, False]
        await links.connect_all([prefill, decode])


@pytest.mark.parametrize("lost", [False, True])
async def test_a_node_that_leaves_is_dropped_on_both_sides_that_are_there(
    client: NodeClient, lost: bool
) -> None:
    async with fake_nodes(serving_links("p"), serving_links("d")) as fakes:
        pair = Pair(fakes, client)
        await pair.links.connect(pair.prefill, pair.decode)
        if lost:
            pair.decode.state = NodeState.LOST
            await pair.fakes[1].stop()
        await pair.links.drop(pair.decode)
        assert not pair.links.has(pair.prefill)
        dropped = [
            {"engine_id": pair.prefill.url, "remote_engine_id": pair.decode.url},
            {"engine_id": pair.decode.url, "remote_engine_id": pair.prefill.url},
        ]
        assert pair.bodies(DROP) == dropped[: 1 if lost else 2]


async def test_a_kept_state_is_freed_once_unless_it_was_fetched(client: NodeClient) -> None:
    async with fake_nodes(serving_links("p"), serving_links("d")) as fakes:
        pair = Pair(fakes, client)
        links, prefill, decode = pair.links, pair.prefill, pair.decode
        for session in (1, 2, 3):
            links.keep(prefill, session)
        links.fetched(prefill, 1)
        links.sent_to(prefill, 3, decode)
        freed = [await links.free(prefill, session) for session in (1, 2, 2, 3, 4)]
        assert freed == [False, True, False, True, False]
        assert pair.bodies(FREE) == [
            {"remote_engine_id": "", "remote_session_id": 2},
            {"remote_engine_id": decode.url, "remote_session_id": 3},
        ]


async def test_states_for_lost_decode_nodes_are_freed_though_a_prefill_node_fails(
    client: NodeClient, caplog: pytest.LogCaptureFixture
) -> None:
    async with fake_nodes(serving_links("p"), serving_links("d")) as fakes:
        pair = Pair(fakes, client)
        for session in (1, 2):
            pair.links.sent_to(pair.prefill, session, pair.decode)
        pair.links.keep(pair.prefill, 3)
        assert await pair.links.free_lost() == 0
        pair.decode.state = NodeState.LOST
        await pair.fakes[0].stop()
        assert await pair.links.free_lost() == 2
        assert [message.endswith("/distserve/free_cache was not done") for message in caplog.messages] == [
            True
        ] * 2
        assert await pair.links.free_lost() == 0


NESTED_BODY = b'{"id":' + b"[" * 5000


@pytest.mark.parametrize(
    ("content", "status", "code", "words"),
    [
        (NESTED_BODY, 200, 502, "does not say where the state of a prefill is"),
        (b"\xff", 200, 502, "does not say where the state of a prefill is"),
        ({"id": "x"}, 200, 502, "does not say where the state of a prefill is"),
        ({"message": "too long"}, 400, 400, "too long"),
        ({"message": 7}, 422, 422, "refuses the request"),
        (NESTED_BODY, 400, 400, "refuses the request"),
        (b'{"message":"\xff"}', 400, 400, "refuses the request"),
    ],
    ids=range(7),
)
async def test_prefills_that_are_none(content: Any, status: int, code: int, words: str) -> None:
    prefill = FakeNode("p", answer=sending(reply(content, status)))
    async with (
        fake_nodes(prefill, FakeNode("d")) as (_, decode),
        running_proxy(serving="DistServe", short_prompt_tokens=0) as proxy,
    ):
        await proxy.add(prefill, role=2)
        await proxy.add(decode, role=3)
        answer = await proxy.chat()
        assert (answer.status_code, words in answer.text) == (code, True), answer.text
        assert decode.generations == []


async def test_a_failed_prefill_is_tried_at_another_node_and_freed_where_no_link_can_be() -> None:
    good = reply({"id": "7", "remote_token_ids": [3], "cache_block_ids": [1]})
    kept = FakeNode("kept", answer=sending(good))
    kept.routes["/distserve/free_cache"] = sending(reply({"status": 1}))
    async with (
        fake_nodes(FakeNode("bad", answer=sending(reply(NESTED_BODY))), kept, FakeNode("d")) as (
            bad,
            _,
            decode,
        ),
        running_proxy(serving="DistServe", short_prompt_tokens=0) as proxy,
    ):
        await proxy.add(bad, kept, role=2)
        await proxy.add(decode, role=3)
        for _ in range(2):  # of two equal nodes, one or the other comes first
            answer = await proxy.chat()
            assert answer.status_code == 502
            assert "are not linked: a node" in answer.text, answer.text
        freed = [call.json() for call in kept.calls if call.path == "/distserve/free_cache"]
        assert freed == [{"remote_engine_id": "", "remote_session_id": 7}] * 2
