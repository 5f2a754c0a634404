"""The document's own route."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.support.servers.fronts import http_client

pytestmark = pytest.mark.anyio


async def test_the_document_has_a_route_that_logs_and_metrics_know() -> None:
    async with http_client(fresh=True) as client:
        whole = (await client.get("/openapi.json")).json()
        assert whole["info"]["title"] == "jan-serve"
        assert "/openapi.json" not in whole["paths"]
        head = await client.head("/openapi.json")
        assert (head.status_code, head.content) == (200, b"")
        refused = await client.post("/openapi.json")
        assert (refused.status_code, refused.json()["error"]["code"]) == (405, "method_not_allowed")
        metrics = (await client.get("/metrics")).text
    assert 'jan_serve_requests_total{route="/openapi.json",status="200"} 2.0' in metrics
    assert "unmatched" not in metrics


async def test_replies_name_their_members() -> None:
    """Clients make types of these: a member that is always there is required, and none is any object."""
    async with http_client() as client:
        document = (await client.get("/openapi.json")).json()

    def reply(path: str) -> dict[str, Any]:
        schema = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        return document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]

    for path in ("/info", "/api/status", "/api/experimental/model-recommendations", "/lmdeploy/v1/models"):
        assert set(reply(path)["required"]) == set(reply(path)["properties"]), path
    card = reply("/lmdeploy/v1/models")["properties"]["data"]["items"]["$ref"].rsplit("/", 1)[1]
    permission = document["components"]["schemas"][card]["properties"]["permission"]["items"]
    assert permission == {"$ref": "#/components/schemas/Permission"}
    assert reply("/v1/responses/{response_id}/input_items")["title"] == "ItemPage"


async def test_the_first_document_is_made_while_others_are_served() -> None:
    """Making it takes a second: no turn of the event loop takes nearly as long."""
    longest, turns = 0.0, 0

    async def others() -> None:
        nonlocal longest, turns
        while True:
            start = time.thread_time()
            await asyncio.sleep(0)
            longest, turns = max(longest, time.thread_time() - start), turns + 1

    async with http_client(fresh=True) as client:
        watching = asyncio.create_task(others())
        start = time.process_time()
        answers = await asyncio.gather(*(client.get("/openapi.json") for _ in range(3)))
        took = time.process_time() - start
        watching.cancel()
    assert len({answer.text for answer in answers}) == 1
    assert turns > 20
    assert longest < took / 2


async def test_a_document_that_could_not_be_made_is_made_whole_by_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    async with http_client(fresh=True) as client:
        with monkeypatch.context() as patch:
            patch.setattr("jan_serve.api.openapi_document._show_keys", fail)
            assert (await client.get("/openapi.json")).status_code == 503
        whole = (await client.get("/openapi.json")).json()
    assert whole["components"]["securitySchemes"]
