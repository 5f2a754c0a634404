"""Routes of the Responses API: create, get, delete, and count input tokens."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.caller import cache_salt
from jan_serve.core.request import ChatPrompt
from jan_serve.dialects.dialect import Services
from jan_serve.dialects.openai.render_common import ReplyFacts
from jan_serve.dialects.openai.responses.compaction import (
    CompactedResponse,
    CompactionRenderer,
    CompactResponseRequest,
    kept_items,
    task,
)
from jan_serve.dialects.openai.responses.items import new_id
from jan_serve.dialects.openai.responses.parse import ParsedResponse, response_request
from jan_serve.dialects.openai.responses.render import ResponseEvents, ResponseForm
from jan_serve.dialects.openai.responses.store import KeptResponse, ResponseStore
from jan_serve.dialects.openai.responses.wire import CreateResponseRequest, InputItem, MessageItem
from jan_serve.dialects.openai.responses.wire_reply import (
    DeletedResponse,
    InputTokens,
    ItemPage,
    ResponseBody,
)
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.answers import answer, answer_whole
from jan_serve.errors import InvalidRequest
from jan_serve.generation.service import GenerationService
from jan_serve.http.disconnect import while_connected
from jan_serve.http.errors import HttpError, Problem, http_problem
from jan_serve.http.replies import json_reply, named_frame
from jan_serve.http.sse import STREAMED


def add_response_routes(
    router: APIRouter, services: Services, service: GenerationService, store_bytes: int
) -> None:
    """store_bytes: size limit of the stored answers."""
    store = ResponseStore(store_bytes)

    @router.post("/v1/responses", summary="Response", response_model=ResponseBody, responses=STREAMED)
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

    _compact_route(router, service, store)
    _kept_routes(router, store)
    _count_route(router, service, store)


def _compact_route(router: APIRouter, service: GenerationService, store: ResponseStore) -> None:

    @router.post("/v1/responses/compact", summary="Compact a conversation", response_model=CompactedResponse)
    async def compact_response(request: Request, body: CompactResponseRequest) -> Response:
        """Replace a conversation by its user's messages and a summary, which the next request sends as input."""
        asked = body.asking()
        previous, items, parsed = _parsed(asked, store, task())
        head = ReplyFacts(new_id("resp"), int(time.time()), body.model)
        kept = kept_items((*(previous.items if previous is not None else ()), *items))
        renderer = CompactionRenderer(head, _shown_items(head.id, kept))
        with _renamed_fields():
            return await answer_whole(request, service.generate(parsed.generation), renderer)


def _kept_routes(router: APIRouter, store: ResponseStore) -> None:
    @router.get("/v1/responses/{response_id}", summary="Kept response", response_model=ResponseBody)
    async def get_response(response_id: str) -> Response:
        """Get a stored answer."""
        kept = store.get(cache_salt.get(), response_id)
        if kept is None:
            raise _not_kept(response_id)
        return json_reply(kept.body)

    @router.get("/v1/responses/{response_id}/input_items", summary="Input items", response_model=ItemPage)
    async def list_input_items(
        response_id: str,
        after: str | None = None,
        limit: Annotated[int, Query(ge=1, le=limits.MAX_PAGE)] = 20,
        order: Literal["asc", "desc"] = "desc",
    ) -> Response:
        """List the items that a stored answer continues, the latest first unless `order` is `asc`."""
        kept = store.get(cache_salt.get(), response_id)
        if kept is None:
            raise _not_kept(response_id)
        rows = _shown_items(response_id, kept.items[: len(kept.items) - len(kept.ids)])
        return json_reply(_page(rows if order == "asc" else rows[::-1], after, limit))

    @router.post("/v1/responses/{response_id}/cancel", summary="Cancel response")
    async def cancel_response(response_id: str) -> Response:
        """Refused: only an answer in the background can be cancelled, and this server makes none."""
        if store.get(cache_salt.get(), response_id) is None:
            raise _not_kept(response_id)
        raise InvalidRequest(
            "response_id: the answer is complete: only one that is made in the background can be cancelled",
            param="response_id",
        )

    @router.delete("/v1/responses/{response_id}", summary="Delete response", response_model=DeletedResponse)
    async def delete_response(response_id: str) -> Response:
        """Delete a stored answer. Answers that continue it are unaffected."""
        if not store.delete(cache_salt.get(), response_id):
            raise _not_kept(response_id)
        return json_reply({"id": response_id, "object": "response", "deleted": True})


_PREFIXES: Final = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "compaction": "cmp",
}


def _shown_items(response_id: str, items: Sequence[InputItem]) -> list[dict[str, Any]]:
    """In the form of the API: with an id, and content as a list of parts."""
    rows: list[dict[str, Any]] = []
    for index, item in enumerate(items):
        row = item.model_dump(exclude_none=True)
        if isinstance(item, MessageItem) and isinstance(item.content, str):
            kind = "output_text" if item.role == "assistant" else "input_text"
            row["content"] = [{"type": kind, "text": item.content}]
        row["id"] = f"{_PREFIXES.get(item.type, 'item')}_{response_id.removeprefix('resp_')}_{index}"
        rows.append(row)
    return rows


def _page(rows: list[dict[str, Any]], after: str | None, limit: int) -> ItemPage:
    """Raises InvalidRequest for an `after` that is none of the rows."""
    ids = [row["id"] for row in rows]
    if after is not None and after not in ids:
        raise InvalidRequest(f"after: there is no item {after[:100]!r}", param="after")
    start = 0 if after is None else ids.index(after) + 1
    shown = rows[start : start + limit]
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": start + limit < len(rows),
    }


def _count_route(router: APIRouter, service: GenerationService, store: ResponseStore) -> None:

    async def count(model_name: str | None, prompt: ChatPrompt) -> int:
        async with service.open(model_name) as model:
            return await model.count(prompt, model_name)

    @router.post("/v1/responses/input_tokens", summary="Input tokens", response_model=InputTokens)
    async def count_input_tokens(request: Request, body: CreateResponseRequest) -> Response:
        """Count the prompt tokens of the conversation, including tools."""
        _, _, parsed = _parsed(body, store)
        generation = parsed.generation
        assert isinstance(generation.prompt, ChatPrompt)
        with _renamed_fields():
            tokens = await while_connected(request, count(generation.model, generation.prompt))
        return json_reply({"object": "response.input_tokens", "input_tokens": tokens})


def _parsed(
    body: CreateResponseRequest, store: ResponseStore, *more: InputItem
) -> tuple[KeptResponse | None, list[InputItem], ParsedResponse]:
    previous, caller = None, cache_salt.get()
    if body.previous_response_id is not None:
        previous = store.get(caller, body.previous_response_id)
        if previous is None:
            raise _no_previous(body.previous_response_id, store)
    items = store.resolved(caller, body.input)
    with _renamed_fields():
        before = previous.items if previous is not None else ()
        return previous, items, response_request(body, before, [*items, *more])


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
