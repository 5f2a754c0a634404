"""Management routes over the model manager and the library."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.api.management import wire
from jan_serve.api.management.listing import Event, all_events, found, load_events, model_list
from jan_serve.api.management.pulls import Management, Pulls
from jan_serve.dialects.shared.default_error_body import error_body
from jan_serve.dialects.shared.documented_errors import (
    MANAGING,
    ErrorBody,
    Responses,
    ValidationErrorBody,
    documented_errors,
)
from jan_serve.dialects.shared.generation_fields import ttl_s
from jan_serve.errors import JanServeError
from jan_serve.http.disconnect import while_connected
from jan_serve.http.json_body import JsonRoute
from jan_serve.http.replies import frame, json_reply
from jan_serve.http.request_record import record_of
from jan_serve.http.sse import STREAMED, EventStream, StreamSettings, frames_of
from jan_serve.store.measurements import certified

logger = logging.getLogger(__name__)

_ERRORS: Final = documented_errors(ErrorBody, MANAGING, {422: {"model": ValidationErrorBody | ErrorBody}})
_STREAMED: Final[Responses] = {**_ERRORS, **STREAMED}


def management_router(
    management: Management, pulls: Pulls, streams: StreamSettings, data_dir: Path
) -> APIRouter:
    """data_dir: has what was measured of models."""
    router = APIRouter(route_class=JsonRoute, tags=["Models"], responses=_ERRORS)
    _memory_routes(router, management, pulls, streams)
    _disk_routes(router, management, pulls, streams)

    @router.get("/models", summary="Models and their state", response_model=wire.ManagedModels)
    async def list_models() -> Response:
        """Every model on disk with its state, and the running downloads."""
        models = await management.library.models()
        default = await asyncio.to_thread(management.library.default)
        states = management.manager.snapshot().models
        enough_for = await asyncio.to_thread(
            lambda: {model.name: [*certified(data_dir, model.name).values()] for model in models}
        )
        return json_reply(model_list(models, states, pulls.downloads(), default, enough_for))

    @router.get("/models/sse", summary="Events of models", responses=_STREAMED)
    async def watch_models() -> Response:
        """Events of all models, until the client disconnects."""
        frames = (frame(event) async for event in all_events(management, pulls))
        return EventStream(frames, streams)

    return router


def _memory_routes(router: APIRouter, management: Management, pulls: Pulls, streams: StreamSettings) -> None:
    manager, library = management.manager, management.library

    async def load_in_background(name: str, keep: float | None) -> None:
        try:
            await manager.load(name, keep)
        except JanServeError as error:
            logger.warning("cannot load %s: %s", name, error.message)

    @router.post("/models/load", summary="Load a model", response_model=wire.Done, responses=_STREAMED)
    async def load(request: Request, body: wire.LoadRequest) -> Response:
        """Load a model into memory. The load stops if the client disconnects while it waits."""
        name = await asyncio.to_thread(library.find, body.model)
        keep = ttl_s(body.keep_alive)
        if body.stream:
            return await _stream(request, load_events(management, name, keep), streams)
        if body.wait:
            await while_connected(request, manager.load(name, keep))
        else:
            management.keep(asyncio.create_task(load_in_background(name, keep), name=f"load {name}"))
        return json_reply({"success": True, "model": name})

    @router.post("/models/unload", summary="Unload a model", response_model=wire.Done)
    async def unload(request: Request, body: wire.UnloadRequest) -> Response:
        """Unload a model from memory; no effect if it is not loaded. Stops a running load, and a download started by
        `POST /models`.
        """
        if await pulls.stop(body.model):
            return json_reply({"success": True, "model": body.model})
        name = await asyncio.to_thread(library.find, body.model)
        await while_connected(request, manager.unload(name, force=body.force))
        return json_reply({"success": True, "model": name})


def _disk_routes(router: APIRouter, management: Management, pulls: Pulls, streams: StreamSettings) -> None:
    manager, library = management.manager, management.library

    @router.post("/models/pull", summary="Download a model", response_model=wire.Pulled, responses=_STREAMED)
    async def pull(request: Request, body: wire.PullRequest) -> Response:
        """Download a model from the hub. It stops if the client disconnects; the next pull resumes it."""
        plan = await while_connected(request, library.plan(body.model, body.revision))
        if body.stream:
            return await _stream(request, pulls.events(body.model, plan), streams)
        return json_reply(await while_connected(request, pulls.pull(body.model, plan)))

    @router.post("/models", summary="Download a model in the background", response_model=wire.Done)
    async def begin_pull(request: Request, body: wire.ModelRequest) -> Response:
        """Start a download in the background: `GET /models` shows it, `POST /models/unload` stops it."""
        plan = await while_connected(request, library.plan(body.model, None))
        management.keep(pulls.begin(body.model, plan))
        return json_reply({"success": True, "model": plan.name})

    @router.get("/models/import", summary="Models of other programs", response_model=wire.FoundModels)
    async def list_found() -> Response:
        """Models of Ollama, LM Studio, Jan and the Hugging Face cache on this machine."""
        return json_reply({"object": "list", "data": await asyncio.to_thread(lambda: found(library))})

    @router.post("/models/import", summary="Import a model", response_model=wire.Done)
    async def import_model(body: wire.ModelRequest) -> Response:
        """Link a model of another program, by its `id` in the list, into the models folder. Nothing is copied."""
        record = await library.take_over(body.model)
        logger.info("imported %s from %s", record.name, record.source.kind)
        return json_reply({"success": True, "model": record.name})

    @router.delete("/models/{name:path}", summary="Delete a model", response_model=wire.Deleted)
    async def delete(name: str) -> Response:
        """Delete a model's files, by a full name or alias that is unique, or by `NAME.gguf`, its path in the models
        folder. 409 while requests use it.
        """
        await asyncio.to_thread(library.check_removable, name)  # a rejected deletion unloads nothing
        async with manager.removing(name) as source:
            removed = await asyncio.to_thread(library.remove, source.name)
        logger.info("deleted %s", removed.name)
        return json_reply({"success": True, "model": removed.name, "freed_bytes": removed.n_freed})

    @router.delete("/models", summary="Delete a model by query", response_model=wire.Deleted)
    async def delete_by_query(model: str) -> Response:
        """As `DELETE /models/{name}`, in llama-server's form."""
        return await delete(model)


async def _stream(request: Request, events: AsyncGenerator[Event], streams: StreamSettings) -> Response:
    """Wait for the first event: an error before it still sets the status."""
    record = record_of(request.scope)
    record.stream = True
    first = await while_connected(request, anext(events))
    frames = frames_of(events, lambda event: (event,), error_body, record=record, first=[first])
    return EventStream(frames, streams)
