"""Assembles the HTTP application: guards, the server's own routes, dialects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from jan_serve import __version__
from jan_serve.api.activity.recent import Activities
from jan_serve.api.batch_conditions import BatchConditions
from jan_serve.api.image_fetcher import image_fetcher
from jan_serve.api.inner_calls import InnerCalls
from jan_serve.api.management.pulls import Management, Pulls
from jan_serve.api.openapi_document import add_document
from jan_serve.api.routes.log import RecentLog
from jan_serve.config import Settings
from jan_serve.core.constraint import PropertyOrder, Whitespace
from jan_serve.dialects.dialect import Dialect, Services
from jan_serve.dialects.health import health_of
from jan_serve.dialects.model_store import ModelStore
from jan_serve.dialects.ports import ControlPlane, ServedModels
from jan_serve.dialects.registry import DIALECTS, DialectFactory
from jan_serve.dialects.shared.default_error_body import render_error
from jan_serve.dialects.shared.ignored_fields import IgnoredFields
from jan_serve.errors import JanServeError
from jan_serve.generation.constraint.grammar_cache import GrammarCache
from jan_serve.generation.deadline import RunningRequests
from jan_serve.generation.media_reader import MediaReader, ModelsWith
from jan_serve.generation.ports import ConstraintTranslator, MediaDecoder, TemplateRenderer
from jan_serve.generation.prepare import RequestPreparer
from jan_serve.generation.profiles import Profiles
from jan_serve.http.deferred_routes import DeferredRoutes, all_routes
from jan_serve.http.errors import (
    CLIENT_CLOSED,
    ClientGone,
    Envelopes,
    HttpError,
    Problem,
    http_problem,
    logged_problem,
    validation_problem,
)
from jan_serve.http.guards.auth import OPEN_PATHS, KeyGuard, TrustedNetworks
from jan_serve.http.guards.body import BodyGuard
from jan_serve.http.guards.guard import DrainGuard
from jan_serve.http.guards.lingering import Lingering
from jan_serve.http.guards.web_pages import HostGuard, OriginGuard
from jan_serve.http.head_requests import HeadRequests, with_head
from jan_serve.http.lifecycle import Lifecycle
from jan_serve.http.metrics import Metrics
from jan_serve.http.paths import ASSETS_PATH, PAGE_PATH
from jan_serve.http.request_record import RequestContext, RequestWatcher, record_of
from jan_serve.http.sse import StreamSettings
from jan_serve.http.strict_json import JsonReader
from jan_serve.http.transcripts import Transcripts
from jan_serve.journal.background import Background
from jan_serve.journal.batch_runner import BatchRunner
from jan_serve.journal.journal import FILE_NAME, Journal
from jan_serve.journal.schema import CHATS, CHATS_FILE
from jan_serve.resources import catalogue_file
from jan_serve.store.measurements import SelfChecks

if TYPE_CHECKING:
    from jan_serve.api.activity.totals import Totals
    from jan_serve.http.tracing import Tracing

_NO_TELEMETRY: Final = TelemetryConfig(tracing=False, metrics=False, logs=False, auto_configure=False)
"""Options of FastAPI: requests stay on this machine, whatever exporters the environment names."""


class AppParts(msgspec.Struct, frozen=True):
    """The state that the server shares with its application: `app.state.parts`."""

    lifecycle: Lifecycle
    running: RunningRequests
    activities: Activities
    totals: Callable[[], Totals]
    background: Background
    chats: Journal
    inner_calls: InnerCalls
    tracing: Tracing | None
    pulls: Pulls | None
    endings: list[Callable[[], Awaitable[None]]]
    """What ends the programs that a route has started."""

    @property
    def watchers(self) -> tuple[RequestWatcher, ...]:
        return (self.activities,) if self.tracing is None else (self.activities, self.tracing)

    async def close(self) -> None:
        """Save what was counted, and send the last spans: after the last request, for seconds at most."""
        await self.totals().save()
        await self.chats.close()
        for end in self.endings:
            await end()
        if self.tracing is not None:
            await asyncio.to_thread(self.tracing.close)


def create_app(
    settings: Settings,
    models: ServedModels,
    renderer: TemplateRenderer,
    translator: ConstraintTranslator,
    *,
    named_grammars: Mapping[str, str] | None = None,
    schemas: Callable[[], Mapping[str, Any]] | None = None,
    profiles: Profiles | None = None,
    page: Path | None = None,
    management: Management | None = None,
    log: RecentLog | None = None,
    control: ControlPlane | None = None,
    decoder: MediaDecoder | None = None,
    dialects: Sequence[DialectFactory] = DIALECTS,
) -> FastAPI:
    """Build the application. The caller owns the models, the renderer and the translator, and closes them.

    named_grammars: GBNF texts by name. schemas: reads those that a `$ref` may name, by URI. profiles: configuration of
    single models. page: folder of the web page. management, log, control: without one, the application does not have
    its routes. decoder: None rejects media.
    """
    lifecycle = Lifecycle()
    pulls = Pulls(management.library) if management is not None else None
    metrics = Metrics(models.snapshot, lifecycle)
    totals = _totals(settings.data_dir)
    parts = AppParts(
        lifecycle,
        RunningRequests(settings.request_timeout_s or None),
        Activities(settings.keep_prompts, ended=lambda activity: totals().count(activity)),
        totals,
        Background(Journal(settings.data_dir / FILE_NAME, settings.journal_bytes)),
        Journal(settings.data_dir / CHATS_FILE, settings.chat_bytes, CHATS),
        InnerCalls(),
        _tracing(settings),
        pulls,
        [],
    )
    self_checks = SelfChecks(settings.data_dir).all()
    health = health_of(models, lifecycle, control, self_checks[-1] if self_checks else None)
    services = Services(
        models=models,
        preparer=RequestPreparer(
            GrammarCache(
                translator,
                named_grammars,
                whitespace=Whitespace(settings.json_whitespace),
                order=PropertyOrder(settings.property_order) if settings.property_order else None,
                schemas=schemas,
            ),
            renderer,
            now=lambda: datetime.now().astimezone(),
            profiles=profiles,
            media=MediaReader(decoder, image_fetcher(settings.image_hosts), _models_with(management)),
        ),
        running=parts.running,
        streams=StreamSettings(settings.sse_ping_s, settings.write_timeout_s),
        metrics=metrics,
        health=health,
        background=parts.background,
        batches=BatchRunner(
            parts.background, parts.inner_calls, BatchConditions(settings, models, lifecycle)
        ),
        store=ModelStore(management.manager, management.library, pulls.events)
        if management is not None and pulls is not None
        else None,
        control=control,
    )
    served = [make(settings, services) for make in dialects]
    greeting = "".join(dialect.outline.greeting for dialect in served)
    routes = _own_routes(settings, page, greeting, log, parts, services)
    if management is not None and pulls is not None:
        routes += _management_routes(management, pulls, services, settings)
    routes += [DeferredRoutes(dialect.router, dialect.outline.paths) for dialect in served]
    return _application(settings, routes, served, metrics, parts)


def _totals(data_dir: Path) -> Callable[[], Totals]:
    """What counts them, imported once there is something to count."""

    @cache
    def made() -> Totals:
        from jan_serve.api.activity.totals import Totals
        from jan_serve.store.totals import TotalFiles

        return Totals(TotalFiles(data_dir))

    return made


def _tracing(settings: Settings) -> Tracing | None:
    if settings.otel_endpoint is None:
        return None
    from jan_serve.http.tracing import tracing_to

    return tracing_to(settings.otel_endpoint, "jan-serve")


def _models_with(management: Management | None) -> ModelsWith | None:
    if management is None:
        return None
    manager, library = management.manager, management.library

    async def names(sense: str) -> Sequence[str]:
        """Those that have shown it first."""
        found = [model.name for model in await library.models() if sense in model.modalities]
        proved = {model.name for model in manager.snapshot().models if sense in model.modalities}
        return sorted(found, key=lambda name: name not in proved)

    return names


def _own_routes(
    settings: Settings,
    page: Path | None,
    greeting: str,
    log: RecentLog | None,
    parts: AppParts,
    services: Services,
) -> list[DeferredRoutes]:
    def health() -> APIRouter:
        from jan_serve.api.routes.root import health_router

        return health_router(services)

    def files() -> APIRouter:
        from jan_serve.api.routes.root import page_router

        return page_router(page, greeting)

    def lines(log: RecentLog) -> APIRouter:
        from jan_serve.api.routes.log import log_router

        return log_router(log, parts.lifecycle, services.streams)

    def requests() -> APIRouter:
        from jan_serve.api.activity.routes import activity_router

        return activity_router(parts.activities, parts.totals, services)

    def chats() -> APIRouter:
        from jan_serve.api.chats.routes import chats_router

        return chats_router(parts.chats, parts.inner_calls.ask)

    def mcp() -> APIRouter:
        from jan_serve.api.routes.mcp import mcp_router

        return mcp_router(settings, parts.endings.append)

    routes = [
        DeferredRoutes(health, ("/health", "/ready", "/metrics")),
        DeferredRoutes(requests, ("/extras/requests", "/extras/totals", "/extras/why")),
        DeferredRoutes(chats, ("/extras/chats",)),
        DeferredRoutes(mcp, ("/extras/mcp",)),
        DeferredRoutes(files, (PAGE_PATH, ASSETS_PATH.removesuffix("/"))),
    ]
    if log is not None:
        routes.append(DeferredRoutes(partial(lines, log), ("/logs",)))
    return routes


def _management_routes(
    management: Management, pulls: Pulls, services: Services, settings: Settings
) -> list[DeferredRoutes]:
    def models() -> APIRouter:
        from jan_serve.api.management.routes import management_router

        return management_router(management, pulls, services.streams, settings.data_dir)

    def clients() -> APIRouter:
        from jan_serve.api.routes.extras import clients_router

        return clients_router(services.models, management.library, needs_key=bool(settings.api_keys))

    def catalogue() -> APIRouter:
        from jan_serve.api.routes.extras import catalogue_router

        return catalogue_router(catalogue_file(), management.library.free_memory)

    return [
        DeferredRoutes(models, ("/models",)),
        DeferredRoutes(clients, ("/extras/clients",)),
        DeferredRoutes(catalogue, ("/extras/catalogue", "/extras/advice")),
    ]


def _application(
    settings: Settings,
    routes: Sequence[BaseRoute],
    dialects: Sequence[Dialect],
    metrics: Metrics,
    parts: AppParts,
) -> FastAPI:
    renderers = {prefix: render for dialect in dialects for prefix, render in dialect.outline.errors.items()}
    envelopes = Envelopes(renderers, render_error)
    open_paths = [*OPEN_PATHS, *(path for dialect in dialects for path in dialect.outline.open_paths)]
    app = FastAPI(
        title="jan-serve",
        version=__version__,
        openapi_url=None,  # add_document has a route that the log and the metrics know
        docs_url=None,  # these two pages load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,
        telemetry=_NO_TELEMETRY,
        middleware=_middleware(settings, envelopes, metrics, parts, dialects, open_paths),
        exception_handlers=_exception_handlers(envelopes),
    )
    app.state.json_reader = JsonReader(settings.max_json_depth)
    app.state.ignored_fields = IgnoredFields().warnings
    app.state.parts = parts
    app.router.routes.extend(routes)  # `include_router` would analyse each of them
    add_document(app, dialects, open_paths)
    parts.inner_calls.attach(
        app, envelopes, _rewrites(dialects), () if parts.tracing is None else (parts.tracing,)
    )
    return app


def _middleware(
    settings: Settings,
    envelopes: Envelopes,
    metrics: Metrics,
    parts: AppParts,
    dialects: Sequence[Dialect],
    open_paths: Sequence[str],
) -> list[Middleware]:
    """Outermost first: the Host check precedes all others, and every later rejection has CORS headers."""
    keys = [key.get_secret_value() for key in settings.api_keys]
    outlines = [dialect.outline for dialect in dialects]
    lifecycle = parts.lifecycle
    return [
        Middleware(Lingering),
        Middleware(
            RequestContext,
            envelopes=envelopes,
            watchers=(metrics, *parts.watchers),
            lifecycle=lifecycle,
            probe_paths=[path for outline in outlines for path in outline.probe_paths],
            rewrites=_rewrites(dialects),
        ),
        Middleware(HostGuard, envelopes=envelopes, bound=settings.host, allowed=settings.host_names),
        Middleware(OriginGuard, envelopes=envelopes, allowed=settings.allowed_origins, open_paths=open_paths),
        Middleware(
            KeyGuard,
            envelopes=envelopes,
            keys=keys,
            open_paths=open_paths,
            trusted=TrustedNetworks(settings.open_networks, settings.open_routes),
        ),
        Middleware(
            DrainGuard,
            envelopes=envelopes,
            lifecycle=lifecycle,
            open_paths=[path for outline in outlines for path in outline.drain_paths],
        ),
        Middleware(
            BodyGuard,
            envelopes=envelopes,
            lifecycle=lifecycle,
            max_bytes=settings.max_body_bytes,
            upload_paths=[path for outline in outlines for path in outline.upload_paths],
            form_paths=[path for outline in outlines for path in outline.form_paths],
        ),
        Middleware(HeadRequests, own_paths=[path for outline in outlines for path in outline.head_paths]),
        Middleware(Transcripts, envelopes=envelopes, lifecycle=lifecycle),
        *(middleware for dialect in dialects for middleware in dialect.middleware),
    ]


def _rewrites(dialects: Sequence[Dialect]) -> list[Callable[[Scope], None]]:
    outlines = [dialect.outline for dialect in dialects]
    return [outline.rewrite_scope for outline in outlines if outline.rewrite_scope is not None]


def _exception_handlers(envelopes: Envelopes) -> dict[int | type[Exception], Any]:
    def answer(request: Request, problem: Problem) -> Response:
        record = record_of(request.scope)
        record.error = problem.code
        return envelopes.render(request.scope["path"], problem, record.request_id)

    async def ours(request: Request, error: JanServeError) -> Response:
        return answer(request, logged_problem(error, record_of(request.scope).request_id))

    async def rejected(request: Request, error: HttpError) -> Response:
        return answer(request, error.problem)

    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return answer(request, validation_problem(error.errors(), error.body))

    async def unrouted(request: Request, error: HTTPException) -> Response:
        return answer(request, _routing_problem(request, error))

    async def gone(request: Request, error: ClientGone | ClientDisconnect) -> Response:
        return Response(status_code=CLIENT_CLOSED)

    return {
        JanServeError: ours,
        HttpError: rejected,
        RequestValidationError: invalid,
        HTTPException: unrouted,
        ClientGone: gone,
        ClientDisconnect: gone,  # inside its body
    }


def _routing_problem(request: Request, error: HTTPException) -> Problem:
    path, method = request.scope["path"], request.scope["method"]
    if error.status_code == HTTPStatus.NOT_FOUND:
        return http_problem(404, "not_found", "There is no such route on this server.").problem
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = {
            allowed
            for route in all_routes(request.app.router.routes)
            if route.matches({"type": "http", "path": path, "method": method})[0] is not Match.NONE
            for allowed in with_head(getattr(route, "methods", ()))
        }
        headers = {"allow": ", ".join(sorted(allowed))}
        return http_problem(
            405, "method_not_allowed", "The route does not have this method.", headers
        ).problem
    return http_problem(error.status_code, "bad_request", "The request could not be read.").problem
