"""The routes that pull, name, make and delete models, and the refusals of what belongs to ollama.com."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.closing import closing
from jan_serve.core.models.default_tag import without_default_tag
from jan_serve.core.models.model_details import ModelDetails
from jan_serve.core.models.variant import Variant
from jan_serve.core.pull_step import PullStep
from jan_serve.dialects.model_store import ModelStore
from jan_serve.dialects.ollama.answer_routes import STREAMED
from jan_serve.dialects.ollama.errors import error_body
from jan_serve.dialects.ollama.head import UPLOADS
from jan_serve.dialects.ollama.management.create import check_create, variant_of
from jan_serve.dialects.ollama.management.pull import PullLines
from jan_serve.dialects.ollama.management.wire import (
    OllamaCopyRequest,
    OllamaCreateRequest,
    OllamaDeleteRequest,
    OllamaProgress,
    OllamaPullRequest,
)
from jan_serve.dialects.ollama.parse_common import model_name
from jan_serve.dialects.ollama.render_common import line
from jan_serve.dialects.ollama.serving import Serving
from jan_serve.errors import ModelNotFound
from jan_serve.http.disconnect import while_connected
from jan_serve.http.errors import http_problem
from jan_serve.http.replies import json_reply
from jan_serve.http.request_record import record_of
from jan_serve.http.sse import EventStream, frames_of

_REFUSED: Final = {
    "/api/push": "this server does not publish models",
    "/api/me": "this server has no account at ollama.com",
    "/api/signin": "this server has no account at ollama.com",
    "/api/signout": "this server has no account at ollama.com",
    "/api/experimental/web_search": "this server does not search the web",
    "/api/experimental/web_fetch": "this server fetches no web pages",
    "/api/web_search": "this server does not search the web",
    "/api/web_fetch": "this server fetches no web pages",
}


def add_management_routes(router: APIRouter, serving: Serving, store: ModelStore) -> None:
    @router.post(
        "/api/pull",
        summary="Download a model",
        response_model=OllamaProgress,
        responses=STREAMED,
    )
    async def pull(request: Request, body: OllamaPullRequest) -> Response:
        """Download a model from the hub. It stops if the client disconnects; the next pull resumes it."""
        steps = store.pull(without_default_tag(model_name(body)))
        if body.stream is False:
            await while_connected(request, _drained(steps))
            return json_reply({"status": "success"})
        record_of(request.scope).stream = True
        first = await while_connected(request, anext(steps))
        frames = frames_of(
            steps,
            PullLines().chunks,
            error_body,
            record=record_of(request.scope),
            first=[first],
            done=b"",
            framed=line,
        )
        return EventStream(frames, serving.streams)

    @router.post("/api/copy", summary="Name a model again", response_class=Response)
    async def copy(body: OllamaCopyRequest) -> Response:
        """A second name for a model, or for a variant as it is now."""
        try:
            found = await store.details(body.source)
        except ModelNotFound:
            reason = f'model "{body.source}" not found'
            raise http_problem(HTTPStatus.NOT_FOUND, ModelNotFound.code, reason) from None
        nothing = OllamaCreateRequest.model_validate({"from": body.source})
        await store.add_variant(_variant(nothing, body.destination, found))
        return Response()

    @router.post(
        "/api/create",
        summary="Make a variant",
        response_model=OllamaProgress,
        responses=STREAMED,
    )
    async def create(body: OllamaCreateRequest) -> Response:
        """A named variant of a model with its own system message, template, parameters, messages and LoRA adapter."""
        name = without_default_tag(model_name(body))
        check_create(body)
        base = body.from_ or ""
        if body.files:
            base = await store.make_model(next(iter(body.files.values())), name)
        found = await store.details(base)
        adapter = None
        if body.adapters:
            [digest] = body.adapters.values()
            adapter = await store.keep_adapter(digest, name, found.model.name)
        await store.add_variant(_variant(body, name, found, adapter))
        lines: list[OllamaProgress] = [{"status": status} for status in ("writing manifest", "success")]
        if body.stream is False:
            return json_reply(lines[-1])
        return Response(b"".join(map(line, lines)), media_type=serving.streams.media_type)

    @router.delete("/api/delete", summary="Delete a model", response_class=Response)
    async def delete(body: OllamaDeleteRequest) -> Response:
        """Delete a model's files. 409 while requests use it."""
        await store.delete(model_name(body))
        return Response()


def add_upload_routes(router: APIRouter, store: ModelStore) -> None:
    path = UPLOADS + "/{digest}"

    @router.head(path, include_in_schema=False)
    async def has_upload(digest: str) -> Response:
        """Whether a file with this digest is there."""
        found = await store.has_upload(digest)
        return Response(status_code=HTTPStatus.OK if found else HTTPStatus.NOT_FOUND)

    @router.post(
        path,
        summary="Upload a GGUF file",
        status_code=201,
        response_class=Response,
        responses={200: {"description": "It is there already"}},
    )
    async def upload(request: Request, digest: str) -> Response:
        """Keep a file, the body, for /api/create."""
        if await store.has_upload(digest):
            return Response()
        length = request.headers.get("content-length", "")
        n_bytes = int(length) if length.isdigit() else 0
        await store.receive_upload(digest, n_bytes, request.stream())
        return Response(status_code=HTTPStatus.CREATED)


def _variant(
    body: OllamaCreateRequest, name: str, found: ModelDetails, adapter: str | None = None
) -> Variant:
    inherited = found.variant
    return variant_of(body, without_default_tag(name), found.model.name, inherited, time.time(), adapter)


async def _drained(steps: AsyncGenerator[PullStep]) -> None:
    async with closing(steps):
        async for _ in steps:
            pass


def add_refusals(router: APIRouter) -> None:
    async def refuse(request: Request) -> Response:
        reason = _REFUSED[request.scope["path"]]
        raise http_problem(HTTPStatus.NOT_FOUND, "not_found", reason)

    for path in _REFUSED:
        router.add_api_route(path, refuse, methods=["POST"], include_in_schema=False)
