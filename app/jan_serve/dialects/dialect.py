"""The contract between the application and a public protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.middleware import Middleware

from jan_serve.dialects.health import Health
from jan_serve.dialects.model_store import ModelStore
from jan_serve.dialects.outline import Outline
from jan_serve.dialects.ports import ControlPlane, ServedModels
from jan_serve.generation.deadline import RunningRequests
from jan_serve.generation.prepare import RequestPreparer
from jan_serve.http.metrics import Metrics
from jan_serve.http.sse import StreamSettings
from jan_serve.journal.background import Background
from jan_serve.journal.batch_runner import BatchRunner


class Services(msgspec.Struct, frozen=True):
    """The server as dialects see it. Each dialect makes its own generation services over these.

    metrics: a dialect registers its series and observers there. store: None if models are not managed, and only
    their names are known. control: None if the server has no control plane.
    """

    models: ServedModels
    preparer: RequestPreparer
    running: RunningRequests
    streams: StreamSettings
    metrics: Metrics
    health: Callable[[], Health]
    background: Background
    batches: BatchRunner
    store: ModelStore | None = None
    control: ControlPlane | None = None


class Dialect(msgspec.Struct, frozen=True):
    """A public protocol, made for one application.

    router: called for the first path that no route before has; it imports the protocol's wire types and handlers.
    middleware: runs inside all guards, so it may read the body. amend_document: changes the OpenAPI document in place.
    """

    outline: Outline
    router: Callable[[], APIRouter]
    middleware: tuple[Middleware, ...] = ()
    amend_document: Callable[[dict[str, Any]], None] | None = None
