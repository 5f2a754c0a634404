"""The document's own route."""

from __future__ import annotations

import pytest

from tests.support.fronts import http_client

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
