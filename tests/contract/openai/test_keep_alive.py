"""`keep_alive` of requests, and the model that serves an unknown name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.engine.fake_client import FakeClient, FakeModels
from tests.support.servers.fronts import http_client

pytestmark = pytest.mark.anyio

ROUTES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    "/v1/completions": {"prompt": "Hi"},
    "/v1/responses": {"input": "Hi"},
    "/v1/embeddings": {"input": "Hi"},
}


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    ("value", "expected"), [("5m", 300.0), (0, 0.0), (-1, -1.0), ("-1s", -1.0), (None, None), (90.5, 90.5)]
)
async def test_keep_alive_reaches_the_lease(path: str, value: Any, expected: float | None) -> None:
    models = FakeModels()
    async with http_client(models) as client:
        answer = await client.post(path, json={**ROUTES[path], "keep_alive": value})
    assert answer.status_code == 200
    assert models.keep_alives == [expected]


@pytest.mark.parametrize("path", ROUTES)
async def test_what_is_no_duration_is_refused(path: str) -> None:
    models = FakeModels()
    async with http_client(models) as client:
        answer = await client.post(path, json={**ROUTES[path], "keep_alive": "soon"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_request", "keep_alive")
    assert models.leased == []


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(("default", "status"), [("fake", 200), (None, 404)])
async def test_unknown_names_are_served_only_where_a_default_is_configured(
    path: str, default: str | None, status: int
) -> None:
    models = FakeModels(FakeClient("fake"), FakeClient("other"))
    async with http_client(models, model=default) as client:
        answer = await client.post(path, json={**ROUTES[path], "model": "gpt-4o"})
        assert answer.status_code == status
        if status == 404:
            assert answer.json()["error"]["code"] == "model_not_found"
        assert (await client.post(path, json=ROUTES[path])).status_code == 200
        assert (await client.post(path, json={**ROUTES[path], "model": "other"})).status_code == 200
