"""Routes of the Responses API: create, get, delete, and count input tokens."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

import msgspec
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.caller import cache_salt
from jan_serve.core.request import ChatPrompt
from jan_serve.core.transcript import started_s
from jan_serve.dialects.dialect import Services
from jan_serve.dialects.openai.pages import page
from jan_serve.dialects.openai.render_common import ReplyFacts
from jan_serve.dialects.openai.responses.background import Asked, BackgroundResponses
from jan_serve.dialects.openai.responses.compaction import (
    CompactedResponse,
    CompactionRenderer,
    CompactResponseRequest,
    kept_items,
    task,
)
from jan_serve.dialects.openai.responses.items import new_id
from jan_serve.dialects.openai.responses.parse import response_request
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
from jan_serve.dialects.shared.wire_types import MAX_INT
from jan_serve.errors import InvalidRequest
from jan_serve.generation.service import GenerationService
from jan_serve.http.disconnect import while_connected
from jan_serve.http.errors import HttpError, Problem, http_problem
from jan_serve.http.replies import json_reply, named_frame
from jan_serve.http.request_record import record_of
from jan_serve.http.sse import STREAMED, EventStream


def add_response_routes(
    router: APIRouter, services: Services, service: GenerationService, answers: StoredAnswers
) -> None:
    @router.post("/v1/responses", summary="Response", response_model=ResponseBody, responses=STREAMED)
    async def create_response(request: Request, body: CreateResponseRequest) -> Response:
        """Continue a conversation, in the form of OpenAI's Responses API."""
        asked = await _asked(body, answers)
        now = started_s()
        if body.background:
            record = record_of(request.scope)
            record.stream = body.stream
            live = await answers.background.begin(new_id("resp"), now, asked, await request.json(), record)
            if body.stream:
                return EventStream(live.follow(-1), services.streams)
            return json_reply(live.body)
        caller = cache_salt.get()

        def keep(response: ResponseBody) -> None:
            if body.store:
                answers.store.keep(caller, response, asked.before, asked.items)

        head = ReplyFacts(new_id("resp"), now, body.model)
        events = service.generate(asked.parsed.generation)
        renderer = ResponseEvents(head, ResponseForm(body, asked.parsed, lambda: int(time.time()), keep))
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

    _compact_route(router, service, answers)
    _reading_routes(router, services, answers)
    _ending_routes(router, answers)
    _count_route(router, service, answers)


class StoredAnswers(msgspec.Struct, frozen=True):
    """Those in memory, and those in the background."""

    store: ResponseStore
    background: BackgroundResponses

    def foreground(self, answer_id: str) -> KeptResponse | None:
        """One in memory that the journal knows nothing of."""
        found = self.store.get(cache_salt.get(), answer_id)
        return None if found is None or found.body["background"] else found

    async def find(self, answer_id: str) -> KeptResponse | None:
        """An answer of this caller that can be continued."""
        caller = cache_salt.get()
        found = self.store.get(caller, answer_id)
        if found is None and await self.background.whole(caller, answer_id) is not None:
            found = self.store.get(caller, answer_id)
        return found


def _compact_route(router: APIRouter, service: GenerationService, answers: StoredAnswers) -> None:

    @router.post("/v1/responses/compact", summary="Compact a conversation", response_model=CompactedResponse)
    async def compact_response(request: Request, body: CompactResponseRequest) -> Response:
        """Replace a conversation by its user's messages and a summary, which the next request sends as input."""
        asked = await _asked(body.asking(), answers, task())
        head = ReplyFacts(new_id("resp"), int(time.time()), body.model)
        if not (asked.earlier or asked.items):
            raise InvalidRequest("input: there is no conversation to compact", param="input")
        kept = kept_items((*asked.earlier, *asked.items))
        renderer = CompactionRenderer(head, _shown_items(head.id, kept))
        with _renamed_fields():
            return await answer_whole(request, service.generate(asked.parsed.generation), renderer)


def _reading_routes(router: APIRouter, services: Services, answers: StoredAnswers) -> None:
    background = answers.background

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
        caller = cache_salt.get()
        if starting_after is not None and not stream:
            raise InvalidRequest(
                "starting_after: only a stream has a place to start from", param="starting_after"
            )
        after = -1 if starting_after is None else starting_after
        if (kept := answers.foreground(response_id)) is not None:
            if stream:
                raise InvalidRequest(
                    "stream: only an answer that was made in the background has one", param="stream"
                )
            return json_reply(kept.body)
        live = await background.live(caller, response_id)
        if live is not None:
            return EventStream(live.follow(after), services.streams) if stream else json_reply(live.body)
        whole = await background.whole(caller, response_id)
        if whole is not None:
            if stream:
                return EventStream(_each(whole.behind(after)), services.streams)
            return Response(whole.reply, media_type="application/json")
        raise _not_kept(response_id)

    @router.get("/v1/responses/{response_id}/input_items", summary="Input items", response_model=ItemPage)
    async def list_input_items(
        response_id: str,
        after: str | None = None,
        limit: Annotated[int, Query(ge=1, le=limits.MAX_PAGE)] = 20,
        order: Literal["asc", "desc"] = "desc",
    ) -> Response:
        """List the items that a stored answer continues, the latest first unless `order` is `asc`."""
        kept = answers.foreground(response_id)
        live = await background.live(cache_salt.get(), response_id) if kept is None else None
        if live is not None:
            items = (*live.asked.earlier, *live.asked.items)
        else:
            kept = kept or await answers.find(response_id)
            if kept is None:
                raise _not_kept(response_id)
            items = kept.items[: len(kept.items) - len(kept.ids)]
        rows = _shown_items(response_id, items)
        return json_reply(page(rows if order == "asc" else rows[::-1], after, limit))


def _ending_routes(router: APIRouter, answers: StoredAnswers) -> None:
    store, background = answers.store, answers.background

    @router.post("/v1/responses/{response_id}/cancel", summary="Cancel response", response_model=ResponseBody)
    async def cancel_response(response_id: str) -> Response:
        """End an answer in the background. One that has ended stays as it is."""
        if answers.foreground(response_id) is not None:
            raise InvalidRequest(
                "response_id: the answer is complete: only one that is made in the background can be cancelled",
                param="response_id",
            )
        caller = cache_salt.get()
        live = await background.live(caller, response_id)
        if live is not None:
            await background.cancel(live)
            return json_reply(live.body)
        whole = await background.whole(caller, response_id)
        if whole is None:
            raise _not_kept(response_id)
        return Response(whole.reply, media_type="application/json")

    @router.delete("/v1/responses/{response_id}", summary="Delete response", response_model=DeletedResponse)
    async def delete_response(response_id: str) -> Response:
        """Delete a stored answer. Answers that continue it are unaffected."""
        caller = cache_salt.get()
        is_foreground = answers.foreground(response_id) is not None
        is_kept = store.delete(caller, response_id)
        if not is_foreground and not await background.delete(caller, response_id) and not is_kept:
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


def _count_route(router: APIRouter, service: GenerationService, answers: StoredAnswers) -> None:

    async def count(model_name: str | None, prompt: ChatPrompt) -> int:
        async with service.open(model_name) as model:
            return await model.count(prompt, model_name)

    @router.post("/v1/responses/input_tokens", summary="Input tokens", response_model=InputTokens)
    async def count_input_tokens(request: Request, body: CreateResponseRequest) -> Response:
        """Count the prompt tokens of the conversation, including tools."""
        generation = (await _asked(body, answers)).parsed.generation
        assert isinstance(generation.prompt, ChatPrompt)
        with _renamed_fields():
            tokens = await while_connected(request, count(generation.model, generation.prompt))
        return json_reply({"object": "response.input_tokens", "input_tokens": tokens})


async def _asked(body: CreateResponseRequest, answers: StoredAnswers, *more: InputItem) -> Asked:
    """more: items behind those of the request, for the prompt alone."""
    previous = None
    if body.previous_response_id is not None:
        previous = await answers.find(body.previous_response_id)
        if previous is None:
            raise _no_previous(body.previous_response_id, answers.store)
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
