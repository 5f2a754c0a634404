"""Requests on their way: where they go, what goes along, and clients that leave."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jan_serve.fleet.node import NodeState, Role
from tests.support.servers.fake_nodes import (
    EVENT_HEAD,
    FakeNode,
    Received,
    chunk,
    fake_nodes,
    reply,
    running_proxy,
    sending,
)

pytestmark = pytest.mark.anyio


EVENTS = [b'data: {"n":1}\n\n', b"event: x\ndata: a\ndata: b\n\n", b": ping\n\n", b"data: [DONE]\n\n"]


def streaming(*events: bytes) -> bytes:
    return EVENT_HEAD + b"".join(map(chunk, events)) + b"0\r\n\r\n"


async def test_a_stream_passes_byte_for_byte() -> None:
    async with (
        fake_nodes(FakeNode(answer=sending(streaming(*EVENTS)))) as (node,),
        running_proxy(node) as front,
    ):
        answer = await front.chat(stream=True)
        assert answer.content == b"".join(EVENTS)
        assert answer.headers["content-type"] == "text/event-stream"


async def test_events_pass_when_they_come() -> None:
    go_on = asyncio.Event()

    async def answer(request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENT_HEAD + chunk(EVENTS[0]))
        await go_on.wait()
        writer.write(chunk(EVENTS[1]) + b"0\r\n\r\n")

    async with fake_nodes(FakeNode(answer=answer)) as (node,), running_proxy(node) as front:
        body = {"model": "m1", "stream": True}
        async with front.client.stream("POST", "/v1/chat/completions", json=body) as response:
            parts = response.aiter_raw()
            assert await anext(parts) == EVENTS[0]
            go_on.set()
            assert await anext(parts) == EVENTS[1]


@pytest.mark.parametrize("step", [1, 7])
async def test_an_answer_passes_at_every_split(step: int) -> None:
    whole = streaming(*EVENTS)
    position = 0

    async def answer(request: Received, writer: asyncio.StreamWriter) -> None:
        for part in (whole[:position], whole[position:]):
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)

    async with fake_nodes(FakeNode(answer=answer)) as (node,), running_proxy(node) as front:
        for split in range(1, len(whole), step):
            position = split
            assert (await front.chat(stream=True)).content == b"".join(EVENTS)
        assert node.connections < 5


async def test_compressed_bytes_are_not_decoded() -> None:
    bomb = b"\x1f\x8b" + bytes(1000)
    node = FakeNode(answer=sending(reply(bomb, content_encoding="gzip")))
    async with fake_nodes(node), running_proxy(node) as front:
        request = front.client.build_request("POST", "/generate", json={"prompt": "x"})
        response = await front.client.send(request, stream=True)
        assert b"".join([part async for part in response.aiter_raw()]) == bomb
        assert response.headers["content-encoding"] == "gzip"


async def test_an_answer_without_length_ends_with_its_connection() -> None:
    node = FakeNode(answer=sending(b"HTTP/1.1 200 OK\r\n\r\nall", close=True))
    async with fake_nodes(node), running_proxy(node) as front:
        assert (await front.chat()).content == b"all"


async def test_an_empty_answer_passes() -> None:
    node = FakeNode(answer=sending(b"HTTP/1.1 204 No Content\r\n\r\n"))
    async with fake_nodes(node), running_proxy(node) as front:
        assert (await front.chat()).status_code == 204


async def test_the_query_and_the_path_pass() -> None:
    async with fake_nodes(FakeNode()) as (node,), running_proxy(node) as front:
        await front.client.post("/tgi/generate?a=%20b&c", json={"inputs": "x"})
        assert node.generations[0].path == "/tgi/generate?a=%20b&c"


async def test_keys_cookies_and_addresses_of_clients_do_not_reach_nodes() -> None:
    secrets = {
        "authorization": "Bearer client-secret",
        "x-api-key": "client-secret",
        "cookie": "client-secret",
        "x-forwarded-for": "client-secret",
        "forwarded": "for=client-secret",
        "connection": "x-dropped",
        "x-dropped": "client-secret",
        "x-kept": "yes",
    }
    async with fake_nodes(FakeNode()) as (node,):
        async with running_proxy(node_key="node-secret", api_keys=("client-secret",)) as front:
            front.client.headers["authorization"] = "Bearer node-secret"
            await front.add(node)
            await front.client.post("/v1/chat/completions", json={"model": "m1"}, headers=secrets)
        leaked = [
            name for call in node.calls for name, value in call.headers.items() if "client-secret" in value
        ]
        assert leaked == []
        assert all(call.headers["authorization"] == "Bearer node-secret" for call in node.calls)
        sent = node.generations[0].headers
        assert (sent["x-kept"], sent["x-forwarded-for"], sent["x-jan-serve-hops"]) == (
            "yes",
            "127.0.0.1",
            "1",
        )


async def test_clients_and_managers_have_keys_of_their_own() -> None:
    async with (
        fake_nodes(FakeNode()) as (node,),
        running_proxy(api_keys=("client",), management_keys=("manager",)) as front,
    ):
        client = {"authorization": "Bearer client"}
        manager = {"authorization": "Bearer manager"}
        body = {"url": node.url}
        for headers, status in (({}, 401), (client, 403), (manager, 200)):
            answer = await front.client.post("/nodes/add", json=body, headers=headers)
            assert answer.status_code == status
        for headers, status in (({}, 401), (client, 401), (manager, 200)):
            assert (await front.client.get("/extras/nodes", headers=headers)).status_code == status
        for headers, status in (({}, 401), (manager, 401), (client, 200)):
            body = {"model": "m1"}
            answer = await front.client.post("/v1/chat/completions", json=body, headers=headers)
            assert answer.status_code == status
        assert (await front.client.get("/health")).status_code == 200
        refused = await front.client.post("/v1/completions", json={})
        assert refused.json()["detail"]["error"]["code"] == "invalid_api_key"


def bearer(key: str | None) -> dict[str, str]:
    return {} if key is None else {"authorization": f"Bearer {key}"}


CHANGES: list[tuple[str, str, dict[str, Any] | None]] = [
    ("POST", "/nodes/add", {"url": "http://127.0.0.1:9"}),
    ("POST", "/nodes/remove", {"url": "http://127.0.0.1:9"}),
    ("POST", "/nodes/terminate", {"url": "http://127.0.0.1:9"}),
    ("GET", "/nodes/terminate_all", None),
    ("POST", "/distserve/connection_warmup", {}),
    ("POST", "/distserve/gc", {}),
]


@pytest.mark.parametrize(("method", "path", "body"), CHANGES, ids=[path for _, path, _ in CHANGES])
@pytest.mark.parametrize(
    ("settings", "statuses"),
    [
        ({"api_keys": ("c",)}, {None: 401, "c": 403, "n": 401}),
        ({"api_keys": ("c",), "node_key": "n"}, {None: 401, "c": 403, "n": 0}),
        ({"api_keys": ("c",), "node_key": "n", "management_keys": ("m",)}, {"c": 403, "n": 401, "m": 0}),
        ({"api_keys": ("c",), "management_keys": ("c",)}, {None: 401, "c": 0}),
        ({"node_key": "n"}, {None: 401, "n": 0}),
        ({"management_keys": ("m",)}, {None: 401, "m": 0}),
        ({}, {None: 0, "c": 0}),
    ],
)
async def test_who_may_change_the_nodes(
    method: str,
    path: str,
    body: dict[str, Any] | None,
    settings: dict[str, Any],
    statuses: dict[str | None, int],
) -> None:
    """0: the request is let in. A node gets the prompts of all clients: a client's key adds none."""
    async with running_proxy(**settings) as front:
        for key, status in statuses.items():
            answer = await front.client.request(method, path, json=body, headers=bearer(key))
            assert answer.status_code == status if status else answer.status_code not in (401, 403), key
            if status == 403:
                assert "--node-key" in answer.text
                assert "--management-key" in answer.text


@pytest.mark.parametrize("path", ["/nodes/status", "/extras/nodes"])
async def test_clients_read_the_list_of_nodes_unless_there_is_a_management_key(path: str) -> None:
    async with running_proxy(api_keys=("c",), node_key="n") as front:
        statuses = [
            (await front.client.get(path, headers=bearer(key))).status_code for key in (None, "c", "n")
        ]
        assert statuses == [401, 200, 200]


async def test_the_key_of_the_nodes_goes_to_no_node_that_a_client_names() -> None:
    async with (
        fake_nodes(FakeNode()) as (node,),
        running_proxy(api_keys=("c",), node_key="node-secret") as front,
    ):
        answer = await front.client.post("/nodes/add", json={"url": node.url}, headers=bearer("c"))
        assert answer.status_code == 403
        assert node.calls == []


async def test_a_node_without_the_right_key_is_not_added() -> None:
    async def guarded(request: Received, writer: asyncio.StreamWriter) -> None:
        ok = request.headers.get("authorization") == "Bearer right"
        writer.write(reply({"data": []}, 200 if ok else 401))

    async with fake_nodes(FakeNode(routes={"/v1/models": guarded})) as (node,):
        for key, status in ((None, 502), ("wrong", 502), ("right", 200)):
            async with running_proxy(node_key=key) as front:
                answer = await front.client.post("/nodes/add", json={"url": node.url}, headers=bearer(key))
                assert answer.status_code == status


async def test_the_environments_proxies_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with fake_nodes(FakeNode()) as (node,), running_proxy(node) as front:
        assert (await front.chat()).status_code == 200


async def test_a_loop_of_proxies_ends() -> None:
    async with running_proxy() as front:
        front.proxy.fleet.add(front.url, Role.HYBRID, ("m1",), None, 0.0)
        front.proxy.fleet.set_state(next(iter(front.proxy.fleet)), NodeState.HEALTHY)
        answer = await front.chat()
        assert answer.status_code == 508
        odd = await front.client.post(
            "/v1/completions", json={"model": "m1"}, headers={"x-jan-serve-hops": "-1"}
        )
        assert odd.status_code == 508


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 400, "not valid JSON"),
        (b"[]", 400, "JSON object"),
        (b'{"model": 5}', 400, "model"),
        (b'{"model": ""}', 400, "model"),
        (b'{"model": "' + b"m" * 2000 + b'"}', 400, "1024"),
        (b'{"model": "m1", "stream": "maybe"}', 400, "stream"),
        (b'{"model": "m1", "model": "m2"}', 400, "more than once"),
        (b'{"model": "m1", "\\u006dodel": "m2"}', 400, "more than once"),
        (b'{"model": "m1", "messages": ' + b"[" * 200 + b"]" * 200 + b"}", 400, "nested"),
        (b'{"model": "m1", "migration_request": {"remote_engine_id": "x"}}', 400, "migration_request"),
        (b'{"model": "m1", "preserve_cache": true}', 400, "preserve_cache"),
        (b'{"model": "m1", "prompt": "\xff"}', 400, "UTF-8"),
        (b'{"model": "m1", "prompt": "' + b"x" * 70_000 + b'"}', 413, "65536"),
        (b'{"model": "m1\\r\\nx: y"}', 404, "does not exist"),
    ],
)
async def test_a_wrong_request_gets_a_clear_error_and_no_node_sees_it(
    body: bytes, status: int, words: str
) -> None:
    async with fake_nodes(FakeNode()) as (node,), running_proxy(node, max_body_bytes=65536) as front:
        answer = await front.client.post(
            "/v1/completions", content=body, headers={"content-type": "application/json"}
        )
        assert answer.status_code == status, answer.text
        assert words in answer.json()["message"]
        assert not node.generations
        found = front.proxy.fleet.find(node.url)
        assert found is not None and found.in_flight == 0


async def test_names_within_a_prompt_may_repeat() -> None:
    async with fake_nodes(FakeNode()) as (node,), running_proxy(node) as front:
        tool: Any = {"function": {"parameters": {"properties": {"model": {}, "stream": {}}}}}
        assert (await front.chat(tools=[tool, tool])).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_is_known_at_the_node(stream: bool) -> None:
    begun = asyncio.Event()

    async def endless(request: Received, writer: asyncio.StreamWriter) -> None:
        if stream:
            writer.write(EVENT_HEAD + chunk(EVENTS[0]))
        begun.set()
        await asyncio.Event().wait()

    async with fake_nodes(FakeNode(answer=endless)) as (node,), running_proxy(node) as front:
        asking = asyncio.create_task(front.chat(stream=stream))
        await begun.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        found = front.proxy.fleet.find(node.url)
        assert found is not None
        async with asyncio.timeout(60):
            await node.left.wait()
        assert (found.in_flight, found.failures, found.pending_tokens) == (0, 0, 0)


async def test_a_client_that_does_not_read_stops_the_node() -> None:
    """Back-pressure: the proxy holds a bounded part of the answer."""
    written = 0

    async def flood(request: Received, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(EVENT_HEAD)
        for _ in range(4096):
            writer.write(chunk(b"x" * 65536))
            await writer.drain()
            written += 65536

    async with (
        fake_nodes(FakeNode(answer=flood)) as (node,),
        running_proxy(node, write_timeout_s=60) as front,
    ):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", int(front.url.rsplit(":", 1)[1]), limit=1024
        )
        body = b'{"model": "m1", "stream": true}'
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(body), body)
        )
        await reader.readuntil(b"\r\n\r\n")
        before = -1
        while before != written:
            before = written
            await asyncio.sleep(0.5)
        assert 0 < written < 32 << 20
        writer.transport.abort()
        await node.left.wait()


async def test_a_conversation_stays_where_it_is_cached_and_moves_when_the_node_goes() -> None:
    nodes = [FakeNode(str(number)) for number in range(6)]
    async with fake_nodes(*nodes), running_proxy(*nodes) as front:
        messages = [{"role": "system", "content": "You are " + "very " * 400}]
        seen: list[str] = []
        for turn in range(6):
            messages.append({"role": "user", "content": f"{turn} " * 100})
            seen.append((await front.chat(messages=messages)).json()["node"])
        assert len(set(seen)) == 1
        await nodes[int(seen[0])].stop()
        moved = (await front.chat(messages=messages)).json()["node"]
        assert moved != seen[0]
        assert (await front.chat(messages=messages)).json()["node"] == moved


async def test_a_stored_response_is_followed_to_its_node() -> None:
    async def stores(request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(reply({"id": f"resp_{request.json()['input']}", "node": request.headers["host"]}))

    nodes = [FakeNode(str(number), answer=stores) for number in range(4)]
    for node in nodes:
        node.routes["/v1/responses/resp_a"] = sending(reply({"node": node.name}))
    async with fake_nodes(*nodes), running_proxy(*nodes, strategy="random") as front:
        first = (await front.client.post("/v1/responses", json={"model": "m1", "input": "a"})).json()["node"]
        owner = next(node for node in nodes if node.url.endswith(first))
        for _ in range(5):
            body = {"model": "m1", "input": "b", "previous_response_id": "resp_a"}
            assert (await front.client.post("/v1/responses", json=body)).json()["node"] == first
            assert (await front.client.get("/v1/responses/resp_a")).json()["node"] == owner.name


async def test_a_removed_node_finishes_what_it_has_begun() -> None:
    go_on = asyncio.Event()

    async def slow(request: Received, writer: asyncio.StreamWriter) -> None:
        await go_on.wait()
        writer.write(reply({"node": "done"}))

    async with fake_nodes(FakeNode(answer=slow)) as (node,), running_proxy(node) as front:
        asking = asyncio.create_task(front.chat())
        while not node.generations:
            await asyncio.sleep(0.001)
        await front.client.post("/nodes/remove", json={"url": node.url})
        go_on.set()
        assert (await asking).json()["node"] == "done"
