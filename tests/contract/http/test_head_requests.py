"""HEAD works where GET does, with GET's head and no body."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from jan_serve.api.app import create_app
from jan_serve.api.routes.log import RecentLog
from jan_serve.http.deferred_routes import all_routes
from jan_serve.http.head_requests import HeadRequests
from tests.support.engine.fake_client import FakeClient, FakeModels
from tests.support.engine.fake_control import FakeControl
from tests.support.helpers.compiling import translate_inline
from tests.support.helpers.rendering import render_inline
from tests.support.servers.fake_nodes import FakeNode, fake_nodes, running_proxy
from tests.support.servers.fronts import make_settings
from tests.support.servers.managed import managed_app

pytestmark = pytest.mark.anyio

ENDLESS = ("/models/sse",)
OF_THE_MOMENT = {"x-request-id", "openai-processing-ms", "content-length", "date"}


def paths_of(app: Any) -> list[str]:
    """Paths of all GET routes, with a name in the place of parameters."""
    return [
        re.sub(r"\{[^}]*\}", "m", route.path)  # type: ignore[attr-defined]
        for route in all_routes(app.router.routes)
        if "GET" in (getattr(route, "methods", None) or ())
    ]


async def check(client: httpx.AsyncClient, path: str) -> None:
    head = await client.head(path)
    assert (head.status_code == 405, head.content) == (False, b""), path
    if path in ENDLESS:
        return
    whole = await client.get(path)
    assert head.status_code == whole.status_code, path
    assert head.headers.keys() - OF_THE_MOMENT == whole.headers.keys() - OF_THE_MOMENT, path
    refused = await client.patch(path)
    if refused.status_code == 405:
        assert {"GET", "HEAD"} <= set(refused.headers["allow"].split(", ")), path


async def test_every_route_of_a_server_that_is_read(tmp_path: Path) -> None:
    control: Any = FakeControl()
    models = FakeModels(FakeClient(name="m"))
    controlled = create_app(
        make_settings(), models, render_inline, translate_inline, control=control, log=RecentLog()
    )
    async with managed_app(tmp_path) as parts:
        for app in (controlled, parts.app):
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                found = paths_of(app)
                assert "/v1/models" in found and "/health" in found
                for path in found:
                    await check(client, path)
    await control.links.close()


async def test_every_route_of_a_proxy_that_is_read() -> None:
    async with fake_nodes(FakeNode()) as (node,), running_proxy(node) as front:
        own = [path for path, methods in front.proxy.router.table.items() if "GET" in methods]
        for path in (*own, "/v1/models/m1", "/v1/health", "/api/version"):
            if path == "/nodes/terminate_all":
                continue
            head = await front.client.head(path)
            assert (head.status_code == 405, head.content) == (False, b""), path
            assert head.status_code == (await front.client.get(path)).status_code


async def test_routes_without_get_do_not_have_it(tmp_path: Path) -> None:
    async with managed_app(tmp_path) as parts:
        transport = httpx.ASGITransport(parts.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            assert (await client.head("/v1/chat/completions")).status_code == 405
            assert (await client.head("/nowhere")).status_code == 404
            assert (await client.head("/api/blobs/sha256:" + "0" * 64)).status_code == 404


async def test_a_stream_ends_after_its_head() -> None:
    sent: list[Message] = []
    heard: list[Message] = []

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["method"] == "GET"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            heard.append(await receive())
            if heard[-1]["type"] == "http.disconnect":
                return

    async def receive() -> Message:
        raise AssertionError("nothing is waited for after the end")

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "HEAD", "path": "/"}
    await HeadRequests(endless)(scope, receive, send)
    assert scope["method"] == "HEAD"
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
