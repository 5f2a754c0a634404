"""The proxy as an ASGI application: the server's guards, its own routes, and those of all protocols, for nodes."""

from __future__ import annotations

import asyncio
import random
import secrets
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from hashlib import blake2b
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from jan_serve.core.caller import cache_salt
from jan_serve.core.latest_tag import without_latest_tag
from jan_serve.core.transcript import Asked
from jan_serve.dialects.outline import Outline, Route
from jan_serve.dialects.outlines import OUTLINES
from jan_serve.errors import JanServeError
from jan_serve.fleet.fleet import Fleet
from jan_serve.fleet.prefixes import NO_KEYS
from jan_serve.http.errors import FORM_PATH, ClientGone, HttpError, form_path, http_problem, logged_problem
from jan_serve.http.guards.auth import OPEN_PATHS
from jan_serve.http.guards.body import BodyGuard
from jan_serve.http.guards.guard import DrainGuard
from jan_serve.http.guards.lingering import Lingering
from jan_serve.http.guards.web_pages import HostGuard, OriginGuard
from jan_serve.http.head_requests import HeadRequests, with_head
from jan_serve.http.lifecycle import Lifecycle
from jan_serve.http.page_files import Page
from jan_serve.http.paths import ASSETS_PATH, PAGE_PATH, is_below, is_page_path
from jan_serve.http.request_record import RequestContext, record_of
from jan_serve.http.strict_json import JsonReader
from jan_serve.proxy.distserve import DistServe, PairLinks
from jan_serve.proxy.fleet_file import FleetFile
from jan_serve.proxy.forwarding import Call, Forwarder, while_client_waits
from jan_serve.proxy.handlers import Handler, Handlers
from jan_serve.proxy.management_guard import ManagementGuard
from jan_serve.proxy.merged_lists import MergedLists
from jan_serve.proxy.metrics import ProxyMetrics
from jan_serve.proxy.node_registry import NodeRegistry
from jan_serve.proxy.probes import Probes
from jan_serve.proxy.problems import MAX_HOPS, envelopes, too_many_hops
from jan_serve.proxy.relay_headers import hops_of, to_node
from jan_serve.proxy.request_facts import RequestFacts, keys_of, read_facts, read_form_facts
from jan_serve.proxy.settings import ProxySettings
from jan_serve.proxy.upstream.node_address import NodeNetworks
from jan_serve.proxy.upstream.node_client import NodeClient
from jan_serve.resources import page_folder

if TYPE_CHECKING:
    from jan_serve.http.tracing import Tracing


class RouteTable:
    def __init__(self, outlines: Sequence[Outline] = OUTLINES) -> None:
        routes = [(route, outline) for outline in outlines for route in outline.forwarded]
        self._exact = {each[0].pattern: each for each in routes if not each[0].pattern.endswith("/*")}
        self._prefixes = [each for each in routes if each[0].pattern.endswith("/*")]

    def find(self, path: str) -> tuple[Route, Outline] | None:
        """A path with `.` or `..` steps has no route: it could leave its prefix at the node."""
        found = self._exact.get(path)
        if found is not None:
            return found
        if any(step in (".", "..") for step in path.split("/")) or "\\" in path:
            return None
        return next((each for each in self._prefixes if path.startswith(each[0].pattern[:-1])), None)


_LISTS: Final = tuple(each for outline in OUTLINES for each in outline.lists)
_JOURNALS: Final = tuple(path for outline in OUTLINES for path in outline.journal_paths)
_FORMS: Final = tuple(path for outline in OUTLINES for path in outline.form_paths)


class Pattern(msgspec.Struct, frozen=True):
    """What the log and the metrics call a route."""

    path: str


class Proxy:
    """All parts of one proxy, and their life. Make it on the event loop."""

    def __init__(self, settings: ProxySettings, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self.lifecycle = Lifecycle()
        self.json = JsonReader(settings.max_json_depth)
        self.page = Page(page_folder(), "".join(outline.greeting for outline in OUTLINES))
        rng = random.Random(secrets.randbits(64))
        node_ca = settings.node_ca
        tls = ssl.create_default_context(cafile=str(node_ca)) if node_ca is not None else None
        networks = NodeNetworks(settings.node_networks)
        self.fleet = Fleet(settings.strategy, rng)
        self.client = NodeClient(
            networks, key=settings.node_key, connect_s=settings.connect_timeout_s, tls=tls, clock=clock
        )
        self.links = PairLinks(self.client, settings.migration_protocol)
        self.file = FleetFile(settings.fleet_file) if settings.fleet_file is not None else None
        self.registry = NodeRegistry(self.fleet, self.client, self.links, clock, self.file)
        self.probes = Probes(
            self.fleet,
            self.client,
            clock,
            rng,
            interval_s=settings.health_interval_s,
            gone=self.registry.ended,
            stays=self.registry.stays,
        )
        self.registry.probes = self.probes
        self.forwarder = Forwarder(
            self.fleet, self.client, settings, clock, self.lifecycle, self.probes.suspect
        )
        self.probes.leaves = self.forwarder.leave
        self.metrics = ProxyMetrics(self.fleet, self.forwarder.counts, self.lifecycle, clock)
        self.lists = MergedLists(self.fleet, self.client, clock)
        self.handlers = Handlers(
            settings, self.fleet, self.registry, self.links, self.metrics, self.lifecycle, self.json, clock
        )
        self.distserve = DistServe(self.forwarder, self.links)
        self.router = Router(self)
        self._tracing = _tracing(settings)
        self.app = _guarded(settings, self.router, self.metrics, self.lifecycle, self._tracing)

    def open(self) -> str | None:
        """Read the remembered nodes and begin to ask them. A message for the user, if the file was set aside.

        Raises HttpError for a URL of the settings, SettingsError, StoreError.
        """
        records, warning = self.file.open() if self.file is not None else ([], None)
        self.registry.restore(records, self.settings.nodes)
        return warning

    async def close(self) -> None:
        await self.probes.close()
        if self._tracing is not None:
            await asyncio.to_thread(self._tracing.close)
        self.client.close()
        if self.file is not None:
            await self.file.close()


class Router:
    """Inside the guards. table: the proxy's own routes, by path and method; models: those of single models, by what
    precedes the name."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        lists: dict[str, dict[str, Handler]] = {
            each.path: {"GET": partial(proxy.lists.whole, each)} for each in _LISTS
        }
        self.table = proxy.handlers.table | lists
        self._routes = RouteTable()
        self._patterns = {path: Pattern(path) for path in self.table}
        self.models: dict[str, Callable[[str], Awaitable[Response]]] = {
            "/v1/models/": proxy.handlers.model,
            **{f"{each.path}/": partial(proxy.lists.one, each) for each in _LISTS if each.names is not None},
        }
        self._salt = secrets.token_bytes(16)
        self._envelopes = envelopes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        try:
            await self._serve(scope, receive, send)
        except HttpError as error:
            problem = error.problem
        except JanServeError as error:
            problem = logged_problem(error, record_of(scope).request_id)
        except ClientGone:
            return
        else:
            return
        record = record_of(scope)
        record.error = problem.code
        response = self._envelopes.render(form_path(scope), problem, record.request_id)
        await response(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        own = self.table.get(path)
        if own is not None:
            scope["route"] = self._patterns[path]
            handler = own.get(method)
            if handler is None:
                raise _wrong_method(own)
            response = await handler(Request(scope, receive))
            await response(scope, receive, send)
            return
        if is_page_path(method, path):
            scope["route"] = Pattern(PAGE_PATH if path == PAGE_PATH else ASSETS_PATH + "{name}")
            request = Request(scope, receive)
            page, name = self._proxy.page, path.removeprefix(ASSETS_PATH)
            response = page.index(request) if path == PAGE_PATH else page.asset(request, name)
            await response(scope, receive, send)
            return
        prefix = next((each for each in self.models if path.startswith(each)), None)
        if prefix is not None and method == "GET":
            scope["route"] = Pattern(prefix + "{name}")
            response = await self.models[prefix](unquote(path.removeprefix(prefix)))
            await response(scope, receive, send)
            return
        found = self._routes.find(path)
        if found is None:
            raise _no_route(path)
        route, outline = found
        scope["route"] = Pattern(route.pattern)
        if method not in route.methods:
            raise _wrong_method(route.methods)
        await self._forward(route, outline, scope, receive, send)

    async def _forward(
        self, route: Route, outline: Outline, scope: Scope, receive: Receive, send: Send
    ) -> None:
        hops = hops_of(scope["headers"])
        if hops >= MAX_HOPS:
            raise too_many_hops()
        settings = self._proxy.settings
        body = await _body(receive)
        facts = await self._facts(route, scope, body) if body else None
        client = scope["client"][0] if scope.get("client") else None
        query = scope["query_string"]
        path = scope["raw_path"] + (b"?" + query if query else b"")
        for each in OUTLINES:
            form = each.body_path(scope["path"], body)
            if form != scope["path"]:
                scope[FORM_PATH], outline = form, each
        if facts is not None and facts.model is not None:
            facts = msgspec.structs.replace(facts, model=self._known_name(outline, facts.model))
        keys = NO_KEYS
        if facts is not None and settings.strategy == "prefix":
            keys = await self._proxy.json.work(body, partial(keys_of, facts, outline, self._salt))
        call = Call(
            route=route,
            method=scope["method"],
            path=path.decode("latin-1"),
            headers=to_node(
                scope["headers"],
                client,
                hops + 1,
                settings.node_key,
                self._caller(),
                record_of(scope).trace.context,
            ),
            body=body,
            facts=facts,
            keys=keys,
            asked=Asked(secrets.token_hex(16), int(time.time())),
        )
        if settings.serving == "DistServe" and route.migrates:
            work = self._proxy.distserve(scope, send, call)
        else:
            work = self._proxy.forwarder(scope, send, call)
        await while_client_waits(receive, scope, work)

    async def _facts(self, route: Route, scope: Scope, body: bytes) -> RequestFacts:
        """Raises InvalidRequest, and InvalidJson for a body that nodes would refuse too."""
        if route.pattern in _FORMS:
            return read_form_facts(Headers(scope=scope).get("content-type", ""), body)
        content = await self._proxy.json.decode(body)
        return await self._proxy.json.work(body, partial(read_facts, content, body))

    def _caller(self) -> str:
        """Stands for the key of the current request, where there are several. It tells nodes nothing about the key."""
        salt = cache_salt.get()
        return blake2b(salt.encode(), digest_size=16, key=self._salt).hexdigest() if salt else ""

    def _known_name(self, outline: Outline, model: str) -> str:
        """Under which a node has the model."""
        names = (*outline.names(model), without_latest_tag(model))
        return next((name for name in names if self._proxy.fleet.has_model(name)), model)


async def _body(receive: Receive) -> bytes:
    """Raises ClientGone, and HttpError of the guard that limits it."""
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _tracing(settings: ProxySettings) -> Tracing | None:
    if settings.otel_endpoint is None:
        return None
    from jan_serve.http.tracing import tracing_to

    return tracing_to(settings.otel_endpoint, "jan-serve-proxy")


def _guarded(
    settings: ProxySettings,
    app: ASGIApp,
    metrics: ProxyMetrics,
    lifecycle: Lifecycle,
    tracing: Tracing | None,
) -> ASGIApp:
    """Outermost last, in the order of the server: the Host check precedes all others."""
    forms = envelopes()
    app = HeadRequests(app)
    app = BodyGuard(
        app, envelopes=forms, lifecycle=lifecycle, max_bytes=settings.max_body_bytes, form_paths=_FORMS
    )
    app = DrainGuard(app, envelopes=forms, lifecycle=lifecycle, open_paths=("/extras/nodes", "/nodes/status"))
    app = ManagementGuard(app, envelopes=forms, settings=settings)
    app = OriginGuard(app, envelopes=forms, allowed=settings.allowed_origins, open_paths=OPEN_PATHS)
    app = HostGuard(app, envelopes=forms, bound=settings.host, allowed=settings.allowed_hosts)
    app = RequestContext(
        app,
        envelopes=forms,
        watchers=(metrics,) if tracing is None else (metrics, tracing),
        lifecycle=lifecycle,
        probe_paths=("/extras/nodes",),
        rewrites=[outline.rewrite_scope for outline in OUTLINES if outline.rewrite_scope is not None],
    )
    return Lingering(app)


def _no_route(path: str) -> HttpError:
    message = "There is no such route on this proxy."
    if is_below(path, _JOURNALS):
        message = "Files and batches lie in the journal of one server: send these requests to a node itself."
    return http_problem(HTTPStatus.NOT_FOUND, "not_found", message)


def _wrong_method(methods: Iterable[str]) -> HttpError:
    allowed = ", ".join(sorted(with_head(methods)))
    return http_problem(
        HTTPStatus.METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "The route does not have this method.",
        {"allow": allowed},
    )


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
