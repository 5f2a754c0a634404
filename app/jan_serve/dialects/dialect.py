"""The contract between the application and a public protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.middleware import Middleware
from starlette.types import Scope

from jan_serve.core.models.listed_model import ListedModel
from jan_serve.dialects.control_plane import ControlPlane
from jan_serve.dialects.health import Health
from jan_serve.dialects.model_store import ModelStore
from jan_serve.dialects.served_models import ServedModels
from jan_serve.generation.deadline import RunningRequests
from jan_serve.generation.prepare import RequestPreparer
from jan_serve.http.errors import ErrorRenderer
from jan_serve.http.metrics import Metrics
from jan_serve.http.sse import StreamSettings


class Services(msgspec.Struct, frozen=True):
    """The server as dialects see it. Each dialect makes its own generation services over these.

    metrics: a dialect registers its series and observers there. list_models: None if only names are known.
    store: None if models are not managed. control: None if the server has no control plane.
    """

    models: ServedModels
    preparer: RequestPreparer
    running: RunningRequests
    streams: StreamSettings
    metrics: Metrics
    health: Callable[[], Health]
    list_models: Callable[[], Awaitable[Sequence[ListedModel]]] | None = None
    store: ModelStore | None = None
    control: ControlPlane | None = None


class Dialect(msgspec.Struct, frozen=True):
    """A public protocol, made for one application.

    router: called for the first path that no route before has; it imports the protocol's wire types and handlers.
    paths: each of its paths is one of these or below one; others do not import it.
    errors: by path prefix. Elsewhere errors have the server's default body.
    rewrite_head: changes a scope before any guard reads it, for requests that a header assigns to this dialect: a path
    set there decides the route, the guards' rules and the form of errors. It sees unchecked requests and must not read
    the body. middleware: runs inside all guards, so it may read the body.
    open_paths: signs of life that need no key and that any page may read (GET).
    probe_paths: polled about the server; neither logged nor waited for by a drain.
    drain_paths: served while the server drains. amend_document: changes the OpenAPI document in place.
    greeting: what `GET /` answers to programs.
    upload_paths: prefixes whose bodies are files, of any type and size, unless a web page sends them.
    form_paths: whose bodies are forms with files.
    head_paths: prefixes below which routes answer HEAD themselves; elsewhere it is GET without the body.
    """

    router: Callable[[], APIRouter]
    paths: tuple[str, ...] = ("",)
    errors: Mapping[str, ErrorRenderer] = msgspec.field(default_factory=dict[str, ErrorRenderer])
    rewrite_head: Callable[[Scope], None] | None = None
    middleware: tuple[Middleware, ...] = ()
    open_paths: tuple[str, ...] = ()
    probe_paths: tuple[str, ...] = ()
    drain_paths: tuple[str, ...] = ()
    amend_document: Callable[[dict[str, Any]], None] | None = None
    greeting: str = ""
    upload_paths: tuple[str, ...] = ()
    form_paths: tuple[str, ...] = ()
    head_paths: tuple[str, ...] = ()
