"""Puts the HTTP application together: guards, dialects, health. Wiring only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match

from jan_serve import __version__
from jan_serve.api.control_plane import ControlPlane
from jan_serve.api.dialect import Dialect, Services, StreamSettings
from jan_serve.api.dialects import DIALECTS
from jan_serve.api.errors import (
    CLIENT_CLOSED,
    ClientGone,
    Envelopes,
    HttpError,
    Problem,
    http_problem,
    problem_of,
    validation_problem,
)
from jan_serve.api.guards.auth import OPEN_PATHS, KeyGuard
from jan_serve.api.guards.body import BodyGuard
from jan_serve.api.guards.drain import DrainGuard
from jan_serve.api.guards.host import HostGuard
from jan_serve.api.guards.lingering import Lingering
from jan_serve.api.guards.origin import OriginGuard
from jan_serve.api.http.request_context import RequestContext
from jan_serve.api.http.request_record import record_of
from jan_serve.api.key_document import with_keys
from jan_serve.api.lifecycle import Lifecycle
from jan_serve.api.management import Management
from jan_serve.api.management.routes import management_router
from jan_serve.api.metrics import Metrics
from jan_serve.api.routes.catalogue import catalogue_router
from jan_serve.api.routes.clients import clients_router
from jan_serve.api.routes.generate_dispatch import GenerateDispatch
from jan_serve.api.routes.generate_document import with_both_protocols
from jan_serve.api.routes.health import health_of, health_router
from jan_serve.api.routes.log import log_router
from jan_serve.api.routes.page import page_router
from jan_serve.api.routes.recent_log import RecentLog
from jan_serve.api.served_models import ServedModels
from jan_serve.api.shared.launcher_limits import GenerateLimits
from jan_serve.config import Settings
from jan_serve.core.sampling import Watermark
from jan_serve.errors import JanServeError
from jan_serve.generation.constraint.compiler import ConstraintCompiler
from jan_serve.generation.deadline import RunningRequests
from jan_serve.generation.ports import TemplateRenderer
from jan_serve.generation.prepare import RequestPreparer
from jan_serve.generation.profiles import ModelProfiles
from jan_serve.resources import catalogue_file

_COMPILERS: Final = 2


@dataclass(frozen=True, slots=True)
class AppParts:
    """What the server that runs the application needs of it: `app.state.parts`."""

    lifecycle: Lifecycle
    running: RunningRequests


def create_app(
    settings: Settings,
    models: ServedModels,
    renderer: TemplateRenderer,
    *,
    named_grammars: Mapping[str, str] | None = None,
    profiles: ModelProfiles | None = None,
    page: Path | None = None,
    management: Management | None = None,
    log: RecentLog | None = None,
    control: ControlPlane | None = None,
    dialects: tuple[Dialect, ...] = DIALECTS,
) -> FastAPI:
    """The application over these models and this renderer, which the caller keeps and shuts down.

    named_grammars: GBNF texts by name. profiles: what is configured for single models.
    page: the folder of the page for browsers. management: what lists, loads and pulls models; None has no such routes.
    log: what GET /logs shows; None has no such route. control: what the control plane's routes work with; None has no
    such routes.
    """
    lifecycle = Lifecycle()
    metrics = Metrics(models.snapshot, lifecycle)
    metrics.observers += [
        dialect.metrics(metrics.registry, models.snapshot)
        for dialect in dialects
        if dialect.metrics is not None
    ]
    running = RunningRequests(settings.request_timeout_s or None)
    envelopes = Envelopes(
        [(prefix, dialect.render_error) for dialect in dialects for prefix in dialect.error_prefixes]
    )
    compilers = ThreadPoolExecutor(_COMPILERS, "constraint")
    health = health_of(models, lifecycle, control)

    services = Services(
        models=models,
        preparer=RequestPreparer(
            ConstraintCompiler(compilers, named_grammars),
            renderer,
            now=lambda: datetime.now().astimezone(),
            profiles=profiles,
            strip_billing_line=settings.strip_billing_line,
        ),
        running=running,
        streams=StreamSettings(settings.sse_ping_s, settings.write_timeout_s),
        metrics_page=metrics.page,
        health=health,
        registry=metrics.registry,
        generate_limits=_generate_limits(settings),
        response_store_bytes=settings.response_store_bytes,
        library=management.library if management is not None else None,
        serves_unknown_names=settings.model is not None,
        control=control,
    )
    routers = [
        health_router(health, models, metrics, control),
        page_router(page),
        *([log_router(log, lifecycle, services.streams)] if log is not None else ()),
        *(_management_routers(management, models, services, settings) if management is not None else ()),
        *(dialect.router(services) for dialect in dialects),
    ]

    app = FastAPI(
        title="jan-serve",
        version=__version__,
        docs_url=None,  # the pages of these two load their scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        middleware=_middleware(settings, envelopes, metrics, lifecycle, dialects),
        exception_handlers=_exception_handlers(
            envelopes, [route for router in routers for route in router.routes]
        ),
    )
    app.state.max_json_depth = settings.max_json_depth
    app.state.parts = AppParts(lifecycle, running)
    for router in routers:
        app.include_router(router)
    app.openapi = with_keys(with_both_protocols(app.openapi), _open_paths(dialects))
    return app


def _management_routers(
    management: Management, models: ServedModels, services: Services, settings: Settings
) -> list[APIRouter]:
    clients = clients_router(models, management.library, needs_key=bool(settings.api_keys))
    return [management_router(management, services.streams), clients, catalogue_router(catalogue_file())]


def _open_paths(dialects: tuple[Dialect, ...]) -> list[str]:
    return [*OPEN_PATHS, *(path for dialect in dialects for path in dialect.open_paths)]


def _middleware(
    settings: Settings,
    envelopes: Envelopes,
    metrics: Metrics,
    lifecycle: Lifecycle,
    dialects: tuple[Dialect, ...],
) -> list[Middleware]:
    """Outermost first. Nothing is asked of a request whose Host is wrong; CORS headers stand on every later refusal."""
    keys = [key.get_secret_value() for key in settings.api_keys]
    open_paths = _open_paths(dialects)
    dispatch = [Middleware(GenerateDispatch) for dialect in dialects if dialect.name == "lmdeploy"]
    return [
        Middleware(Lingering),
        Middleware(RequestContext, envelopes=envelopes, metrics=metrics, lifecycle=lifecycle),
        Middleware(HostGuard, envelopes=envelopes, bound=settings.host, allowed=settings.allowed_hosts),
        Middleware(OriginGuard, envelopes=envelopes, allowed=settings.allowed_origins, open_paths=open_paths),
        Middleware(KeyGuard, envelopes=envelopes, keys=keys, open_paths=open_paths),
        Middleware(DrainGuard, envelopes=envelopes, lifecycle=lifecycle),
        Middleware(BodyGuard, envelopes=envelopes, max_bytes=settings.max_body_bytes),
        *dispatch,
    ]


def _generate_limits(settings: Settings) -> GenerateLimits:
    return GenerateLimits(
        max_concurrent_requests=settings.tgi_max_concurrent_requests,
        max_best_of=settings.tgi_max_best_of,
        max_stop_sequences=settings.tgi_max_stop_sequences,
        max_top_n_tokens=settings.tgi_max_top_n_tokens,
        max_client_batch_size=settings.tgi_max_client_batch_size,
        max_input_tokens=settings.tgi_max_input_tokens,
        max_total_tokens=settings.tgi_max_total_tokens,
        max_body_bytes=settings.tgi_max_body_bytes,
        compute_type=settings.tgi_compute_type,
        watermark=Watermark(settings.watermark_gamma, settings.watermark_delta),
    )


def _exception_handlers(
    envelopes: Envelopes, routes: Sequence[BaseRoute]
) -> dict[int | type[Exception], Any]:
    def answer(request: Request, problem: Problem) -> Response:
        record_of(request.scope).error = problem.code
        return envelopes.render(request.scope["path"], problem)

    async def known(request: Request, error: JanServeError) -> Response:
        return answer(request, problem_of(error))

    async def refused(request: Request, error: HttpError) -> Response:
        return answer(request, error.problem)

    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return answer(request, validation_problem(error.errors()))

    async def unrouted(request: Request, error: HTTPException) -> Response:
        return answer(request, _routing_problem(request, error, routes))

    async def gone(request: Request, error: ClientGone) -> Response:
        return Response(status_code=CLIENT_CLOSED)

    return {
        JanServeError: known,
        HttpError: refused,
        RequestValidationError: invalid,
        HTTPException: unrouted,
        ClientGone: gone,
    }


def _routing_problem(request: Request, error: HTTPException, routes: Sequence[BaseRoute]) -> Problem:
    path, method = request.scope["path"], request.scope["method"]
    if error.status_code == HTTPStatus.NOT_FOUND:
        return http_problem(404, "not_found", "There is no such route on this server.").problem
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = {
            allowed
            for route in routes
            if route.matches({"type": "http", "path": path, "method": method})[0] is not Match.NONE
            for allowed in getattr(route, "methods", ())
        }
        headers = {"allow": ", ".join(sorted(allowed))}
        return http_problem(
            405, "method_not_allowed", "The route does not have this method.", headers
        ).problem
    return http_problem(error.status_code, "bad_request", "The request could not be read.").problem
