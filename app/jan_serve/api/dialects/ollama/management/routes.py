"""The routes that pull and delete models, and the refusals of what belongs to ollama.com."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.api.dialects.ollama.answering import NDJSON_RESPONSE
from jan_serve.api.dialects.ollama.errors import error_body
from jan_serve.api.dialects.ollama.management.pull import PullLines
from jan_serve.api.dialects.ollama.management.wire import DeleteRequest, Progress, PullRequest
from jan_serve.api.dialects.ollama.names import LATEST
from jan_serve.api.dialects.ollama.parse_common import model_name
from jan_serve.api.dialects.ollama.render_common import line
from jan_serve.api.dialects.ollama.serving import Serving
from jan_serve.api.errors import http_problem
from jan_serve.api.http.disconnect import while_connected
from jan_serve.api.http.replies import json_reply
from jan_serve.api.http.request_record import record_of
from jan_serve.api.http.sse import EventStream, frames_of, resumed
from jan_serve.api.model_store import ModelStore
from jan_serve.core.pull_step import PullStep
from jan_serve.generation.closing import closing

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
        response_model=Progress,
        responses={200: {"content": NDJSON_RESPONSE}},
    )
    async def pull(request: Request, body: PullRequest) -> Response:
        """Download a model from the hub. It stops if the client disconnects; the next pull resumes it."""
        steps = store.pull(model_name(body).removesuffix(LATEST))
        if body.stream is False:
            await while_connected(request, _drained(steps))
            return json_reply({"status": "success"})
        record_of(request.scope).stream = True
        first = await while_connected(request, anext(steps))
        frames = frames_of(
            resumed(first, steps),
            PullLines().chunks,
            error_body,
            record=record_of(request.scope),
            done=b"",
            framed=line,
        )
        return EventStream(frames, serving.streams)

    @router.delete("/api/delete", summary="Delete a model")
    async def delete(body: DeleteRequest) -> Response:
        """Delete a model's files. 409 while requests use it."""
        await store.delete(model_name(body))
        return Response()


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
