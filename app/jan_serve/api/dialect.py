"""What a public protocol hands to the application: its routes, and how its clients read errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import APIRouter
from prometheus_client import CollectorRegistry

from jan_serve.api.control_plane import ControlPlane
from jan_serve.api.errors import ErrorRenderer
from jan_serve.api.http.sse import PING
from jan_serve.api.metrics import RequestObserver
from jan_serve.api.routes.health import Health
from jan_serve.api.served_models import ServedModels
from jan_serve.api.shared.launcher_limits import GenerateLimits
from jan_serve.core.model_status import ManagerSnapshot
from jan_serve.generation.deadline import RunningRequests
from jan_serve.generation.prepare import RequestPreparer
from jan_serve.store.library import ModelLibrary


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Seconds between keep-alive comments, and until a reader that takes nothing is dropped. ping: the comment."""

    ping_s: float
    write_timeout_s: float
    ping: bytes = PING


@dataclass(frozen=True, slots=True)
class Services:
    """What dialects build on. Shared by all of them; each makes its own generation services over these.

    library: what is known of the models that are here; None where only their names are. serves_unknown_names: a default
    model is configured, which serves requests for models that are not here, in dialects that have this rule.
    control: None where the server cannot be controlled. response_store_bytes: for answers that requests go on from.
    """

    models: ServedModels
    preparer: RequestPreparer
    running: RunningRequests
    streams: StreamSettings
    metrics_page: Callable[[], bytes]
    health: Callable[[], Health]
    registry: CollectorRegistry
    generate_limits: GenerateLimits
    response_store_bytes: int
    library: ModelLibrary | None = None
    serves_unknown_names: bool = False
    control: ControlPlane | None = None


MetricsFactory = Callable[[CollectorRegistry, Callable[[], ManagerSnapshot]], RequestObserver]
"""Registers the series of a protocol, which count the requests of all protocols and read the state of the models."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """A protocol. error_prefixes: path prefixes whose errors it renders; "" is every path that no other claims.

    open_paths: signs of life, which may be read (GET) without a key and by any page.
    """

    name: str
    error_prefixes: tuple[str, ...]
    render_error: ErrorRenderer
    router: Callable[[Services], APIRouter]
    metrics: MetricsFactory | None = None
    open_paths: tuple[str, ...] = ()
