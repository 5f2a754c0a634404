"""What one key leaves on the server is for no other: for another key, its ids are as unknown as any.

Each row makes something that outlives its request, and names every way in which an id of it can be used. The same
holds for the clients of a proxy, whose requests have one key.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from jan_serve.http.guards.auth import CALLER
from jan_serve.ipc.messages import Accepted, EngineEvent, EngineRequest
from tests.contract.lmdeploy.support import keeping
from tests.support.engine.fake_client import FakeClient, FakeModels
from tests.support.engine.fake_control import FakeControl, controlled_client
from tests.support.servers.fronts import http_client

pytestmark = pytest.mark.anyio

Headers = dict[str, str]
Call = Callable[[httpx.AsyncClient, Headers], Awaitable[httpx.Response]]
KEYS = ("k-one", "k-two")
PAIRS = {
    "two keys": ({"x-api-key": KEYS[0]}, {"authorization": f"Bearer {KEYS[1]}"}),
    "clients of a proxy": (
        {"x-api-key": KEYS[0], CALLER.decode(): "one"},
        {"x-api-key": KEYS[0], CALLER.decode(): "two"},
    ),
    "a proxy and its client": (
        {"x-api-key": KEYS[0], CALLER.decode(): "one"},
        {"x-api-key": KEYS[0]},
    ),
}
ANSWER = {"input": "my secret", "max_output_tokens": 4}


def uses_of(response_id: str, item_id: str) -> dict[str, Call]:
    """Every use of a stored answer, the last one of which deletes it."""

    def posting(path: str, **body: Any) -> Call:
        return lambda client, headers: client.post(path, headers=headers, json=body)

    reference = [{"type": "item_reference", "id": item_id}, {"role": "user", "content": "x"}]
    return {
        "get": lambda client, headers: client.get(f"/v1/responses/{response_id}", headers=headers),
        "continue": posting("/v1/responses", input="x", previous_response_id=response_id),
        "count": posting("/v1/responses/input_tokens", input="x", previous_response_id=response_id),
        "item": posting("/v1/responses", input=reference),
        "delete": lambda client, headers: client.delete(f"/v1/responses/{response_id}", headers=headers),
    }


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
async def test_a_stored_answer_is_unknown_to_another_caller(pair: tuple[Headers, Headers]) -> None:
    owner, other = pair
    async with http_client(api_keys=KEYS) as client:
        made = (await client.post("/v1/responses", json=ANSWER, headers=owner)).json()
        response_id, item_id = made["id"], made["output"][0]["id"]
        unknown_id, unknown_item = response_id[:-4] + "0000", item_id[:-4] + "0000"
        unknown = uses_of(unknown_id, unknown_item)
        for name, use in uses_of(response_id, item_id).items():
            refused, expected = await use(client, other), await unknown[name](client, other)
            assert refused.status_code == expected.status_code in (400, 404), name
            words = refused.text.replace(response_id, unknown_id).replace(item_id, unknown_item)
            assert _without_request(words) == _without_request(expected.text), name
        for name, use in uses_of(response_id, item_id).items():
            answer = await use(client, owner)
            assert answer.status_code == 200, (name, answer.text)


async def test_one_caller_pushes_out_no_answer_of_another_one() -> None:
    owner, other = PAIRS["two keys"]
    async with http_client(api_keys=KEYS, response_store_bytes=200_000) as client:
        mine = (await client.post("/v1/responses", json=ANSWER, headers=owner)).json()["id"]
        for _ in range(10):
            large = {"input": "x" * 50_000, "max_output_tokens": 1}
            assert (await client.post("/v1/responses", json=large, headers=other)).status_code == 200
        assert (await client.get(f"/v1/responses/{mine}", headers=owner)).status_code == 200


def _without_request(text: str) -> str:
    """An error without the id of its request."""
    return text.partition("req_")[0]


async def test_a_kept_state_is_unknown_to_another_key() -> None:
    owner, other = PAIRS["two keys"]
    client, control = FakeClient(script=keeping), FakeControl()
    async with controlled_client(control, FakeModels(client), api_keys=KEYS) as http:
        client.states[1] = b"state"
        asked = {"model": "fake", "prompt": "x", "max_tokens": 1, "with_cache": True, "preserve_cache": True}
        session = int((await http.post("/lmdeploy/v1/completions", json=asked, headers=owner)).json()["id"])
        free = {"remote_engine_id": "http://x", "remote_session_id": session}
        await http.post("/distserve/free_cache", json=free, headers=other)
        assert control.links.kept_states == 1
        again = {**asked, "session_id": session}
        client.states[2] = b"state"
        assert (await http.post("/lmdeploy/v1/completions", json=again, headers=other)).status_code == 200, (
            "the number is free for other keys"
        )
        assert control.links.kept_states == 2
        occupied = await http.post("/lmdeploy/v1/completions", json=again, headers=owner)
        assert (occupied.status_code, "occupied" in occupied.text) == (400, True)
        await http.post("/distserve/free_cache", json=free, headers=owner)
        await http.post("/distserve/free_cache", json=free, headers=other)
        assert control.links.kept_states == 0


@contextlib.asynccontextmanager
async def running(http: httpx.AsyncClient, began: asyncio.Event, headers: Headers) -> AsyncGenerator[None]:
    body = {"prompt": "x", "session_id": 77, "stream": False}
    task = asyncio.create_task(http.post("/lmdeploy/generate", json=body, headers=headers))
    await began.wait()
    yield
    answer = await task
    assert answer.status_code == 200


@pytest.mark.parametrize("wanted", [{"session_id": 77}, {"abort_all": True}])
async def test_a_running_request_is_aborted_by_its_own_key_alone(wanted: dict[str, Any]) -> None:
    owner, other = PAIRS["two keys"]
    began, ended = asyncio.Event(), asyncio.Event()

    async def waiting(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        yield Accepted(request.id, 3)
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with controlled_client(
        FakeControl(), FakeModels(FakeClient(script=waiting)), api_keys=KEYS
    ) as http:
        async with running(http, began, owner):
            refused = await http.post("/abort_request", json=wanted, headers=other)
            unknown = await http.post("/abort_request", json={**wanted, "session_id": 78}, headers=other)
            assert refused.status_code == unknown.status_code
            assert not ended.is_set()
            assert (await http.post("/abort_request", json=wanted, headers=owner)).status_code == 200
        assert ended.is_set()
