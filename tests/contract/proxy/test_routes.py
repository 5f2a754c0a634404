"""Every route of a server goes on to a node, is the proxy's own too, or stays at the node: those are named here."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from jan_serve.api.app import create_app
from jan_serve.api.routes.log import RecentLog
from jan_serve.http.deferred_routes import all_routes
from jan_serve.http.paths import is_page_path
from jan_serve.proxy.app import RouteTable
from tests.support.engine.fake_client import FakeModels
from tests.support.engine.fake_control import FakeControl
from tests.support.helpers.compiling import translate_inline
from tests.support.helpers.rendering import render_inline
from tests.support.servers.fake_nodes import FakeNode, fake_nodes, running_proxy
from tests.support.servers.fronts import make_settings
from tests.support.servers.managed import managed_app

pytestmark = pytest.mark.anyio

AT_THE_NODE: Final = {
    "changes one server": (
        "POST /api/blobs/{digest}",
        "HEAD /api/blobs/{digest}",
        "POST /api/copy",
        "POST /api/create",
        "DELETE /api/delete",
        "POST /api/pull",
        "POST /api/push",
        "DELETE /models",
        "POST /models",
        "GET /models/import",
        "POST /models/import",
        "POST /models/load",
        "POST /models/pull",
        "POST /models/unload",
        "GET /models/sse",
        "DELETE /models/{name:path}",
        "DELETE /v1/decide/calibration",
        "GET /v1/decide/calibration",
        "POST /v1/decide/calibration",
    ),
    "LMDeploy's control plane, and links between two nodes": tuple(
        f"{method} {prefix}{path}"
        for prefix in ("", "/lmdeploy")
        for method, path in (
            ("POST", "/abort_request"),
            ("GET", "/distserve/engine_info"),
            ("POST", "/distserve/free_cache"),
            ("POST", "/distserve/p2p_connect"),
            ("POST", "/distserve/p2p_drop_connect"),
            ("POST", "/distserve/p2p_initialize"),
            ("GET", "/is_sleeping"),
            ("POST", "/sleep"),
            ("GET", "/terminate"),
            ("POST", "/update_weights"),
            ("POST", "/wakeup"),
        )
    ),
    "lies in the journal of one server": (
        "GET /v1/batches",
        "POST /v1/batches",
        "GET /v1/batches/{batch_id}",
        "POST /v1/batches/{batch_id}/cancel",
        "GET /v1/files",
        "POST /v1/files",
        "DELETE /v1/files/{file_id}",
        "GET /v1/files/{file_id}",
        "GET /v1/files/{file_id}/content",
        "GET /v1/messages/batches",
        "POST /v1/messages/batches",
        "DELETE /v1/messages/batches/{batch_id}",
        "GET /v1/messages/batches/{batch_id}",
        "POST /v1/messages/batches/{batch_id}/cancel",
        "GET /v1/messages/batches/{batch_id}/results",
    ),
    "belongs to the chats of one server": (
        "GET /extras/chats",
        "GET /extras/chats/export",
        "GET /extras/chats/folders",
        "POST /extras/chats/folders",
        "POST /extras/chats/import",
        "DELETE /extras/chats/{chat_id}",
        "GET /extras/chats/{chat_id}",
        "PATCH /extras/chats/{chat_id}",
        "PUT /extras/chats/{chat_id}",
        "POST /extras/chats/{chat_id}/restore",
    ),
    "describes one server, or its models": (
        "GET /api/experimental/model-recommendations",
        "GET /api/status",
        "GET /extras/advice",
        "GET /extras/catalogue",
        "GET /extras/clients",
        "GET /extras/mcp",
        "POST /extras/mcp/call",
        "GET /extras/requests",
        "GET /extras/requests/{request_id}/prompt",
        "GET /extras/totals",
        "GET /extras/why/{request_id}",
        "GET /lmdeploy/health",
        "GET /lmdeploy/metrics",
        "GET /logs",
        "GET /lora-adapters",
        "GET /openapi.json",
        "GET /ping",
        "GET /props",
        "GET /slots",
        "GET /tgi",
    ),
    "only says that it does not exist": (
        "POST /api/experimental/web_fetch",
        "POST /api/experimental/web_search",
        "POST /api/me",
        "POST /api/signin",
        "POST /api/signout",
        "POST /api/web_fetch",
        "POST /api/web_search",
        "POST /lmdeploy/v1/chat/interactive",
        "POST /v1/chat/interactive",
    ),
}


async def test_every_route_of_a_server_is_decided_upon(tmp_path: Path) -> None:
    control: Any = FakeControl()
    controlled = create_app(
        make_settings(), FakeModels(), render_inline, translate_inline, control=control, log=RecentLog()
    )
    async with managed_app(tmp_path) as parts, running_proxy() as front:
        served = {
            (method, path)
            for app in (controlled, parts.app)
            for route in all_routes(app.router.routes)
            if (path := getattr(route, "path", None)) is not None
            for method in getattr(route, "methods", ())
        }
        own = {(method, path) for path, methods in front.proxy.router.table.items() for method in methods}
    await control.links.close()
    own |= {("GET", prefix + "{name:path}") for prefix in front.proxy.router.models}
    own |= {(method, path) for method, path in served if is_page_path(method, path)}
    table = RouteTable()
    forwarded = {
        (method, path)
        for method, path in served - own
        if (found := table.find(path)) is not None and method in found[0].methods
    }
    kept = [tuple(each.split(" ", 1)) for group in AT_THE_NODE.values() for each in group]
    assert len(kept) == len(set(kept))
    undecided, gone = served - own - forwarded - set(kept), set(kept) - (served - own - forwarded)
    assert not undecided, (
        "in `forwarded` or `lists` of their outlines, or in AT_THE_NODE here with the reason"
    )
    assert not gone, "in AT_THE_NODE, but no server has them or the proxy passes them on"


async def test_what_lies_in_a_journal_is_refused_with_the_reason() -> None:
    async with running_proxy() as front:
        for path in ("/v1/files", "/v1/batches/batch_1", "/v1/messages/batches"):
            refused = await front.client.post(path, json={})
            assert refused.status_code == 404
            assert "one server" in refused.json()["error"]["message"]


def form(*fields: tuple[str, str]) -> bytes:
    parts = [
        f'--b\r\ncontent-disposition: form-data; name="{name}"\r\n\r\n{text}\r\n' for name, text in fields
    ]
    return ("".join(parts) + "--b--\r\n").encode()


TYPE: Final = {"content-type": "multipart/form-data; boundary=b"}


async def test_a_form_goes_to_a_node_with_its_model_and_its_bytes_do_not_change() -> None:
    nodes = FakeNode("text", ("m1",)), FakeNode("ear", ("hears",))
    body = form(("file", "RIFF\x00 --b not a delimiter"), ("model", "hears"), ("stream", "true"))
    async with fake_nodes(*nodes), running_proxy(*nodes) as front:
        for _ in range(5):
            answer = await front.client.post("/v1/audio/transcriptions", content=body, headers=TYPE)
            assert answer.json()["node"] == "ear"
        sent = nodes[1].generations[0]
        assert (sent.body, sent.headers["content-type"]) == (body, TYPE["content-type"])


@pytest.mark.parametrize(
    ("content", "headers", "status", "says"),
    [
        (form(("model", "a"), ("model", "b")), TYPE, 400, "model: occurs more than once"),
        (form(("model", "nobodys")), TYPE, 404, "nobodys"),
        (form(("model", "x" * 2000)), TYPE, 400, "1 to 1024"),
        (form(("model", "m1"))[:-8], TYPE, 400, "cut off"),
        (b"{}", {"content-type": "application/json"}, 400, "multipart/form-data"),
    ],
)
async def test_a_bad_form_is_refused_before_it_reaches_a_node(
    content: bytes, headers: dict[str, str], status: int, says: str
) -> None:
    async with fake_nodes(FakeNode()) as (node,), running_proxy(node) as front:
        answer = await front.client.post("/v1/audio/transcriptions", content=content, headers=headers)
        assert answer.status_code == status
        assert says in answer.json()["error"]["message"]
        assert not node.generations
