"""Routes of the Responses API: create, get, delete, compact, and count input tokens."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.caller import cache_salt
from jan_serve.core.request import ChatPrompt
from jan_serve.core.transcript import started_s
from jan_serve.dialects.openai.dialect import OpenAIParts
from jan_serve.dialects.openai.render_common import ReplyFacts, page
from jan_serve.dialects.openai.responses.background import Asked, StoredResponses
from jan_serve.dialects.openai.responses.compaction import (
    CompactedResponse,
    CompactionRenderer,
    CompactResponseRequest,
    kept_items,
    task,
)
from jan_serve.dialects.openai.responses.items import new_id
from jan_serve.dialects.openai.responses.parse import response_request
from jan_serve.dialects.openai.responses.render import ResponseEvents
from jan_serve.dialects.openai.responses.wire import CreateResponseRequest, InputItem, MessageItem
from jan_serve.dialects.openai.responses.wire_reply import (
    DeletedResponse,
    InputTokens,
    ItemPage,
    ResponseBody,
)
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.answers import answer, answer_whole
from jan_serve.dialects.shared.wire_types import MAX_INT, wrong
from jan_serve.errors import InvalidRequest
from jan_serve.generation.service import LeasedModel
from jan_serve.http.disconnect import while_connected
from jan_serve.http.errors import HttpError, Problem, http_problem
from jan_serve.http.replies import json_reply, named_frame
from jan_serve.http.request_record import record_of
from jan_serve.http.sse import STREAMED, EventStream


def add_routes(router: APIRouter, parts: OpenAIParts) -> None:
    answers = parts.answers()
    _making_routes(router, parts, answers)
    _reading_routes(router, parts, answers)
    _ending_routes(router, answers)


def _making_routes(router: APIRouter, parts: OpenAIParts, answers: StoredResponses) -> None:
    service, streams = parts.service, parts.services.streams

    @router.post("/v1/responses", summary="Response", response_model=ResponseBody, responses=STREAMED)
    async def create_response(request: Request, body: CreateResponseRequest) -> Response:
        """Continue a conversation, in the form of OpenAI's Responses API."""
        asked = await _asked(body, answers)
        now = started_s()
        if body.background:
            record = record_of(request.scope)
            record.stream = body.stream
            live = await answers.begin(new_id("resp"), now, asked, await request.json(), record)
            return EventStream(live.follow(-1), streams) if body.stream else json_reply(live.body)
        caller = cache_salt.get()

        def keep(response: ResponseBody) -> None:
            if body.store:
                answers.store.keep(caller, response, asked.before, asked.items)

        head = ReplyFacts(new_id("resp"), now, body.model)
        events = service.generate(asked.parsed.generation)
        renderer = ResponseEvents(head, body, asked.parsed, keep)
        with _renamed_fields():
            return await answer(
                request,
                events,
                renderer,
                renderer.failed,
                streams,
                stream=body.stream,
                done=b"",
                framed=named_frame,
            )

    @router.post("/v1/responses/compact", summary="Compact a conversation", response_model=CompactedResponse)
    async def compact_response(request: Request, body: CompactResponseRequest) -> Response:
        """Replace a conversation by its user's messages and a summary, which the next request sends as input."""
        asked = await _asked(body.asking(), answers, task())
        head = ReplyFacts(new_id("resp"), int(time.time()), body.model)
        items = (*asked.earlier, *asked.items)
        if not items:
            raise wrong("input", "there is no conversation to compact")
        renderer = CompactionRenderer(head, _shown_items(head.id, kept_items(items)))
        with _renamed_fields():
            return await answer_whole(request, service.generate(asked.parsed.generation), renderer)

    @router.post("/v1/responses/input_tokens", summary="Input tokens", response_model=InputTokens)
    async def count_input_tokens(request: Request, body: CreateResponseRequest) -> Response:
        """Count the prompt tokens of the conversation, including tools."""
        generation = (await _asked(body, answers)).parsed.generation
        assert isinstance(generation.prompt, ChatPrompt)
        count = partial(LeasedModel.count, prompt=generation.prompt, requested=generation.model)
        with _renamed_fields():
            tokens = await while_connected(request, service.with_model(generation.model, count))
        return json_reply({"object": "response.input_tokens", "input_tokens": tokens})


def _reading_routes(router: APIRouter, parts: OpenAIParts, answers: StoredResponses) -> None:
    streams = parts.services.streams

    @router.get(
        "/v1/responses/{response_id}",
        summary="Kept response",
        response_model=ResponseBody,
        responses=STREAMED,
    )
    async def get_response(
        response_id: str,
        stream: bool = False,
        starting_after: Annotated[int | None, Query(ge=0, le=MAX_INT)] = None,
    ) -> Response:
        """Get a stored answer. One in the background can be a stream, from behind the event `starting_after`."""
        if starting_after is not None and not stream:
            raise wrong("starting_after", "only a stream has a place to start from")
        after = -1 if starting_after is None else starting_after
        if (kept := answers.foreground(response_id)) is not None:
            if stream:
                raise wrong("stream", "only an answer that was made in the background has one")
            return json_reply(kept.body)
        if (live := await answers.live(response_id)) is not None:
            return EventStream(live.follow(after), streams) if stream else json_reply(live.body)
        whole = await answers.whole(response_id)
        if whole is None:
            raise _not_kept(response_id)
        if stream:
            return EventStream(_each(whole.behind(after)), streams)
        return Response(whole.reply, media_type="application/json")

    @router.get("/v1/responses/{response_id}/input_items", summary="Input items", response_model=ItemPage)
    async def list_input_items(
        response_id: str,
        after: str | None = None,
        limit: Annotated[int, Query(ge=1, le=limits.MAX_PAGE)] = 20,
        order: Literal["asc", "desc"] = "desc",
    ) -> Response:
        """List the items that a stored answer continues, the latest first unless `order` is `asc`."""
        kept = answers.foreground(response_id)
        live = await answers.live(response_id) if kept is None else None
        if live is not None:
            items = (*live.asked.earlier, *live.asked.items)
        else:
            kept = kept or await answers.find(response_id)
            if kept is None:
                raise _not_kept(response_id)
            items = kept.items[: len(kept.items) - len(kept.ids)]
        rows = _shown_items(response_id, items)
        return json_reply(page(rows if order == "asc" else rows[::-1], after, limit))


def _ending_routes(router: APIRouter, answers: StoredResponses) -> None:
    @router.post("/v1/responses/{response_id}/cancel", summary="Cancel response", response_model=ResponseBody)
    async def cancel_response(response_id: str) -> Response:
        """End an answer in the background. One that has ended stays as it is."""
        if answers.foreground(response_id) is not None:
            raise wrong(
                "response_id",
                "the answer is complete: only one that is made in the background can be cancelled",
            )
        if (live := await answers.live(response_id)) is not None:
            await answers.cancel(live)
            return json_reply(live.body)
        whole = await answers.whole(response_id)
        if whole is None:
            raise _not_kept(response_id)
        return Response(whole.reply, media_type="application/json")

    @router.delete("/v1/responses/{response_id}", summary="Delete response", response_model=DeletedResponse)
    async def delete_response(response_id: str) -> Response:
        """Delete a stored answer. Answers that continue it are unaffected."""
        if not await answers.delete(response_id):
            raise _not_kept(response_id)
        return json_reply({"id": response_id, "object": "response", "deleted": True})


async def _each(frames: Iterable[bytes]) -> AsyncGenerator[bytes]:
    for frame in frames:
        yield frame


_PREFIXES: Final = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "compaction": "cmp",
}


def _shown_items(response_id: str, items: Sequence[InputItem]) -> list[dict[str, Any]]:
    """Items in the form of the API: with an id, and content as a list of parts."""
    rows: list[dict[str, Any]] = []
    for index, item in enumerate(items):
        row = item.model_dump(exclude_none=True)
        if isinstance(item, MessageItem) and isinstance(item.content, str):
            kind = "output_text" if item.role == "assistant" else "input_text"
            row["content"] = [{"type": kind, "text": item.content}]
        row["id"] = f"{_PREFIXES.get(item.type, 'item')}_{response_id.removeprefix('resp_')}_{index}"
        rows.append(row)
    return rows


async def _asked(body: CreateResponseRequest, answers: StoredResponses, *more: InputItem) -> Asked:
    """more: items behind those of the request, for the prompt alone."""
    previous = None
    if body.previous_response_id is not None:
        previous = await answers.find(body.previous_response_id)
        if previous is None:
            raise _no_previous(body.previous_response_id, keeps=answers.store.keeps)
    items = answers.store.resolved(cache_salt.get(), body.input)
    with _renamed_fields():
        parsed = response_request(body, previous.items if previous is not None else (), [*items, *more])
    return Asked(body, parsed, items, previous)


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


def _no_previous(response_id: str, *, keeps: bool) -> HttpError:
    reason = "it was not stored, or is kept no longer" if keeps else "this server keeps no answers"
    return HttpError(
        Problem(
            HTTPStatus.BAD_REQUEST,
            "previous_response_not_found",
            f"previous_response_id: there is no response {response_id[:100]!r}: {reason}. Send the whole conversation"
            " as input.",
            param="previous_response_id",
        )
    )
