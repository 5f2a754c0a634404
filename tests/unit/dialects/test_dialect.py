"""A dialect that this file alone knows: everything that it brings is served, and no other dialect changes."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute
from msgspec.structs import replace
from prometheus_client import Counter
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jan_serve import dialects
from jan_serve.api.app import create_app
from jan_serve.config import Settings
from jan_serve.core.events import Finished, GenerationEvent, TextDelta
from jan_serve.core.request import GenerationRequest, TextPrompt
from jan_serve.dialects.dialect import Dialect, Services
from jan_serve.dialects.outline import Outline
from jan_serve.dialects.outlines import OUTLINES
from jan_serve.dialects.registry import DIALECTS, DialectFactory
from jan_serve.dialects.shared.answers import answer_stream
from jan_serve.dialects.shared.wire_types import WireModel
from jan_serve.errors import InvalidRequest
from jan_serve.generation.service import GenerationService
from jan_serve.http.deferred_routes import all_routes
from jan_serve.http.errors import Problem
from jan_serve.http.json_body import JsonRoute
from jan_serve.http.paths import reroute
from jan_serve.http.replies import json_bytes, json_reply
from jan_serve.http.request_record import RequestRecord
from tests.support.engine.fake_client import FakeModels
from tests.support.engine.fake_control import FakeControl
from tests.support.helpers.compiling import translate_inline
from tests.support.helpers.rendering import render_inline
from tests.support.servers.fronts import http_client, make_settings

pytestmark = pytest.mark.anyio

PREFIX = "/small"


class Ask(WireModel):
    text: str


def lines(event: GenerationEvent) -> Iterator[object]:
    """An object for each text and for the end."""
    match event:
        case TextDelta(text=text):
            yield {"piece": text}
        case Finished(reason=reason):
            yield {"end": reason}
        case _:
            pass


class Version:
    """Middleware that adds a header to every answer of this dialect."""

    def __init__(self, app: ASGIApp, version: str) -> None:
        self._app = app
        self._version = version

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_version(message: Message) -> None:
            if message["type"] == "http.response.start" and scope["path"].startswith(PREFIX):
                MutableHeaders(scope=message)["small-version"] = self._version
            await send(message)

        await self._app(scope, receive, send_with_version)


def render_error(problem: Problem) -> Response:
    return json_reply({"small_error": problem.code}, problem.status)


def rewrite_scope(scope: Scope) -> None:
    """`/v1/models` and `/` are ours where a header says so."""
    names = {name for name, _ in scope["headers"]}
    if scope["path"] in ("/", "/v1/models") and b"small-client" in names:
        reroute(scope, PREFIX + scope["path"])


OUTLINE = Outline(
    errors={PREFIX: render_error},
    rewrite_scope=rewrite_scope,
    open_paths=(PREFIX + "/",),
    probe_paths=(PREFIX + "/",),
    drain_paths=(PREFIX + "/",),
)


def small_dialect(settings: Settings, services: Services) -> Dialect:
    router = APIRouter(route_class=JsonRoute, tags=["Small"])
    generation = GenerationService(services.models, services.preparer, services.running)
    streams = replace(services.streams, ping_s=0, media_type="application/x-ndjson")
    body_limit = settings.max_body_bytes
    seen = Counter("small_requests", "Requests.", ("status",), registry=services.metrics.registry)

    def count(status: int, record: RequestRecord) -> None:
        seen.labels(str(status)).inc()

    services.metrics.observers.append(count)

    @router.get(PREFIX + "/")
    @router.head(PREFIX + "/", include_in_schema=False)
    async def alive() -> Response:
        return PlainTextResponse("small is running")

    @router.get(PREFIX + "/v1/models")
    async def models() -> Response:
        names = [model.name for model in await services.models.models()]
        return json_reply({"small_models": names, "body_limit": body_limit})

    def framed(value: object) -> bytes:
        return json_bytes(value) + b"\n"

    @router.post(PREFIX + "/ask")
    async def ask(request: Request, body: Ask) -> Response:
        if not body.text:
            raise InvalidRequest("text: is empty", param="text")
        events = generation.generate(GenerationRequest(prompt=TextPrompt(body.text)))
        return await answer_stream(
            request,
            events,
            lines,
            lambda problem: {"small_error": problem.code},
            streams,
            done=b"",
            framed=framed,
        )

    def amend_document(document: dict[str, Any]) -> None:
        document["paths"][PREFIX + "/ask"]["post"]["description"] = "Amended."

    return Dialect(
        OUTLINE,
        lambda: router,
        middleware=(Middleware(Version, version="7"),),
        amend_document=amend_document,
    )


PAGE = {"origin": "http://localhost:3000"}
ALL = (*DIALECTS, small_dialect)


async def test_a_header_chooses_the_dialect_of_a_shared_path() -> None:
    async with http_client(dialects=ALL, max_body_bytes=1234) as client:
        ours = await client.get("/v1/models", headers={"small-client": "1"})
        others = await client.get("/v1/models")
        root = await client.get("/", headers={"small-client": "1"})
        root_head = await client.head("/", headers={"small-client": "1"})
        other_root = await client.get("/")
    assert ours.json() == {"small_models": ["fake"], "body_limit": 1234}
    assert others.json()["object"] == "list"
    assert (root.text, other_root.text) == ("small is running", "Ollama is running")
    assert (root_head.status_code, root_head.content) == (200, b"")


async def test_errors_have_its_form_on_its_paths_only() -> None:
    async with http_client(dialects=ALL) as client:
        answers = {
            "route": await client.post("/small/ask", json={"text": ""}),
            "schema": await client.post("/small/ask", json={}),
            "body guard": await client.post(
                "/small/ask", content=b"a=1", headers={"content-type": "text/plain", **PAGE}
            ),
            "unknown path": await client.get("/small/none"),
            "other dialect": await client.post("/v1/chat/completions", json={}),
        }
    assert {
        name: (answer.status_code, answer.json().get("small_error")) for name, answer in answers.items()
    } == {
        "route": (400, "invalid_request"),
        "schema": (422, "validation_error"),
        "body guard": (415, "unsupported_media_type"),
        "unknown path": (404, "not_found"),
        "other dialect": (400, None),
    }


async def test_guards_answer_a_rewritten_request_in_its_form() -> None:
    async with http_client(dialects=ALL, api_keys=("secret",)) as client:
        ours = {"small-client": "1"}
        refused = await client.get("/v1/models", headers=ours)
        other_refused = await client.get("/v1/models")
        served = await client.get("/v1/models", headers={**ours, "x-api-key": "secret"})
        alive = await client.get("/", headers=ours)
    assert (refused.status_code, refused.json()) == (401, {"small_error": "invalid_api_key"})
    assert other_refused.json()["error"]["type"] == "authentication_error"
    assert (served.status_code, alive.status_code) == (200, 200)


async def test_streams_are_lines_of_json() -> None:
    async with http_client(dialects=ALL) as client:
        answer = await client.post("/small/ask", json={"text": "a"})
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    lines = answer.text.splitlines()
    assert lines[-1] == '{"end":"stop"}'
    assert all(line.startswith('{"piece":') for line in lines[:-1])


async def test_its_middleware_and_metric_see_requests() -> None:
    async with http_client(dialects=ALL, fresh=True) as client:
        ours = await client.get("/small/v1/models")
        others = await client.get("/v1/models")
        page = (await client.get("/metrics")).text
    assert (ours.headers.get("small-version"), others.headers.get("small-version")) == ("7", None)
    assert 'small_requests_total{status="200"} 2.0' in page


async def test_its_probes_are_served_while_the_server_drains() -> None:
    app = create_app(make_settings(), FakeModels(), render_inline, translate_inline, dialects=ALL)
    app.state.parts.lifecycle.draining = True
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        alive = await client.get("/small/")
        refused = await client.get("/small/v1/models")
    assert alive.status_code == 200
    assert (refused.status_code, refused.json()) == (503, {"small_error": "draining"})


def test_it_amends_the_document_and_nothing_else_changes() -> None:
    def paths(dialects: tuple[Any, ...]) -> dict[str, Any]:
        return create_app(
            make_settings(), FakeModels(), render_inline, translate_inline, dialects=dialects
        ).openapi()["paths"]

    found, before = paths(ALL), paths(DIALECTS)
    assert found["/small/ask"]["post"]["description"] == "Amended."
    assert {path: found[path] for path in before} == before


def dialect_of(make: DialectFactory) -> Dialect:
    made: list[Dialect] = []

    def kept(settings: Settings, services: Services) -> Dialect:
        made.append(make(settings, services))
        return made[0]

    control: Any = FakeControl()
    create_app(
        make_settings(), FakeModels(), render_inline, translate_inline, control=control, dialects=(kept,)
    )
    return made[0]


@pytest.mark.parametrize("make", DIALECTS)
def test_every_route_is_at_a_path_that_the_dialect_declares(make: DialectFactory) -> None:
    dialect = dialect_of(make)
    for route in all_routes(dialect.router().routes):
        assert isinstance(route, APIRoute)
        assert any(
            route.path == path or route.path.startswith(f"{path}/") for path in dialect.outline.paths
        ), route.path


def test_the_proxy_has_the_heads_of_the_server_in_its_order() -> None:
    assert [dialect_of(make).outline.paths for make in DIALECTS] == [outline.paths for outline in OUTLINES]
    assert [dialect_of(make).outline for make in DIALECTS] == list(OUTLINES)


def test_each_folder_with_an_outline_is_registered() -> None:
    folders = {path.parent.name for path in Path(dialects.__file__).parent.glob("*/outline.py")}
    text = Path(dialects.__file__).with_name("outlines.py").read_text(encoding="utf-8")
    registered = set(re.findall(r"jan_serve\.dialects\.(\w+)", text))
    assert folders <= registered, (
        "an import and an entry in dialects/outlines.py, an entry in dialects/registry.py"
    )


def test_a_contract_keeps_every_dialect_from_the_others() -> None:
    folder = Path(dialects.__file__).parent
    names = {f"jan_serve.dialects.{outline.parent.name}" for outline in folder.glob("*/outline.py")}
    contracts = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    apart = next(set(each["modules"]) for each in contracts if each["type"] == "independence")
    proxied = next(
        set(each["forbidden_modules"]) for each in contracts if each["name"].startswith("the proxy names")
    )
    where = "in pyproject.toml, the contracts `no dialect imports another` and `the proxy names no dialect`"
    assert names == apart, where
    assert names == proxied - {"jan_serve.api"}, where
