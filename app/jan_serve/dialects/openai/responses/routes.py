"""Routes of the Responses API: create, get, delete, and count input tokens."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from http import HTTPStatus

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.caller import cache_salt
from jan_serve.core.request import ChatPrompt
from jan_serve.dialects.dialect import Services
from jan_serve.dialects.openai.render_common import ReplyFacts
from jan_serve.dialects.openai.responses.items import new_id
from jan_serve.dialects.openai.responses.parse import ParsedResponse, response_request
from jan_serve.dialects.openai.responses.render import ResponseEvents, ResponseForm
from jan_serve.dialects.openai.responses.store import KeptResponse, ResponseStore
from jan_serve.dialects.openai.responses.wire import CreateResponseRequest, InputItem
from jan_serve.dialects.openai.responses.wire_reply import DeletedResponse, InputTokens, ResponseBody
from jan_serve.dialects.shared.answers import answer
from jan_serve.errors import InvalidRequest
from jan_serve.generation.service import GenerationService
from jan_serve.http.disconnect import while_connected
from jan_serve.http.errors import HttpError, Problem, http_problem
from jan_serve.http.replies import json_reply, named_frame
from jan_serve.http.sse import SSE_RESPONSE


def add_response_routes(
    router: APIRouter, services: Services, service: GenerationService, store_bytes: int
) -> None:
    """store_bytes: size limit of the stored answers."""
    store = ResponseStore(store_bytes)

    @router.post(
        "/v1/responses",
        tags=["OpenAI V1"],
        summary="Response",
        response_model=ResponseBody,
        responses={200: {"content": SSE_RESPONSE}},
    )
    async def create_response(request: Request, body: CreateResponseRequest) -> Response:
        """Continue a conversation, in the form of OpenAI's Responses API."""
        previous, items, parsed = _parsed(body, store)
        caller = cache_salt.get()

        def keep(response: ResponseBody) -> None:
            if body.store:
                store.keep(caller, response, previous, items)

        now = int(time.time())
        head = ReplyFacts(new_id("resp"), now, body.model)
        events = service.generate(parsed.generation)
        renderer = ResponseEvents(head, ResponseForm(body, parsed, lambda: int(time.time()), keep))
        with _renamed_fields():
            return await answer(
                request,
                events,
                renderer,
                renderer.failed,
                services.streams,
                stream=body.stream,
                done=b"",
                framed=named_frame,
            )

    _kept_routes(router, store)
    _count_route(router, service, store)


def _kept_routes(router: APIRouter, store: ResponseStore) -> None:
    @router.get(
        "/v1/responses/{response_id}",
        tags=["OpenAI V1"],
        summary="Kept response",
        response_model=ResponseBody,
    )
    async def get_response(response_id: str) -> Response:
        """Get a stored answer."""
        kept = store.get(cache_salt.get(), response_id)
        if kept is None:
            raise _not_kept(response_id)
        return json_reply(kept.body)

    @router.delete(
        "/v1/responses/{response_id}",
        tags=["OpenAI V1"],
        summary="Delete response",
        response_model=DeletedResponse,
    )
    async def delete_response(response_id: str) -> Response:
        """Delete a stored answer. Answers that continue it are unaffected."""
        if not store.delete(cache_salt.get(), response_id):
            raise _not_kept(response_id)
        return json_reply({"id": response_id, "object": "response", "deleted": True})


def _count_route(router: APIRouter, service: GenerationService, store: ResponseStore) -> None:

    async def count(model_name: str | None, prompt: ChatPrompt) -> int:
        async with service.open(model_name) as model:
            return await model.count(prompt, model_name)

    @router.post(
        "/v1/responses/input_tokens",
        tags=["OpenAI V1"],
        summary="Input tokens",
        response_model=InputTokens,
    )
    async def count_input_tokens(request: Request, body: CreateResponseRequest) -> Response:
        """Count the prompt tokens of the conversation, including tools."""
        _, _, parsed = _parsed(body, store)
        generation = parsed.generation
        assert isinstance(generation.prompt, ChatPrompt)
        with _renamed_fields():
            tokens = await while_connected(request, count(generation.model, generation.prompt))
        return json_reply({"object": "response.input_tokens", "input_tokens": tokens})


def _parsed(
    body: CreateResponseRequest, store: ResponseStore
) -> tuple[KeptResponse | None, list[InputItem], ParsedResponse]:
    previous, caller = None, cache_salt.get()
    if body.previous_response_id is not None:
        previous = store.get(caller, body.previous_response_id)
        if previous is None:
            raise _no_previous(body.previous_response_id, store)
    items = store.resolved(caller, body.input)
    with _renamed_fields():
        return previous, items, response_request(body, previous.items if previous is not None else (), items)


@contextmanager
def _renamed_fields() -> Generator[None]:
    """Errors name the field of this API."""
    try:
        yield
    except InvalidRequest as error:
        if error.param == "messages":
            error.param = "input"
        raise


def _not_kept(response_id: str) -> HttpError:
    return http_problem(
        HTTPStatus.NOT_FOUND, "not_found", f"Response with id {response_id[:100]!r} is not kept here."
    )


def _no_previous(response_id: str, store: ResponseStore) -> HttpError:
    reason = "it was not stored, or is kept no longer" if store.keeps else "this server keeps no answers"
    return HttpError(
        Problem(
            HTTPStatus.BAD_REQUEST,
            "previous_response_not_found",
            f"previous_response_id: there is no response {response_id[:100]!r}: {reason}. Send the whole conversation"
            " as input.",
            param="previous_response_id",
        )
    )
