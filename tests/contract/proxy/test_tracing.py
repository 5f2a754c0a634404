"""Which context of a trace a node gets from the proxy."""

from __future__ import annotations

import pytest

from tests.support.servers.fake_nodes import FakeNode, fake_nodes, running_proxy
from tests.support.spans import context, kept_spans

pytestmark = pytest.mark.anyio

CLIENTS = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
BODY = {"model": "m1", "messages": [{"role": "user", "content": "Hi"}]}
PATH = "/v1/chat/completions"


async def test_that_of_the_client_where_the_proxy_has_no_collector() -> None:
    async with fake_nodes(FakeNode()) as (node,), running_proxy(node) as front:
        await front.client.post(PATH, json=BODY, headers={"traceparent": CLIENTS, "tracestate": "a=b"})
        assert node.generations[0].headers["traceparent"] == CLIENTS
        assert node.generations[0].headers["tracestate"] == "a=b"


async def test_the_span_of_the_proxy_which_is_below_that_of_the_client() -> None:
    with kept_spans() as spans:
        async with (
            fake_nodes(FakeNode()) as (node,),
            running_proxy(node, otel_endpoint="http://127.0.0.1:9") as front,
        ):
            await front.client.post(PATH, json=BODY, headers={"traceparent": CLIENTS, "tracestate": "a=b"})
            headers = node.generations[0].headers
    span = spans.one(f"POST {PATH}")
    assert span.parent is not None and f"{span.parent.span_id:016x}" in CLIENTS
    _, trace, parent, flags = headers["traceparent"].split("-")
    assert (trace, flags) == (CLIENTS.split("-")[1], "01")
    assert parent == f"{context(span).span_id:016x}"
    assert headers["tracestate"] == "a=b"
    assert span.resource.attributes["service.name"] == "jan-serve-proxy"
