"""GET /extras/requests and /extras/why/{id}: for the key that made the requests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.responses import Response

from jan_serve.api.activity.causes import causes
from jan_serve.api.activity.recent import KEPT, Activities, Activity, State
from jan_serve.api.activity.totals import Totals
from jan_serve.core.caller import cache_salt
from jan_serve.core.events import CacheTier
from jan_serve.core.trace import KeptPrompt
from jan_serve.dialects.dialect import Services
from jan_serve.dialects.ports import ServedModels
from jan_serve.generation.deadline import RunningRequests
from jan_serve.generation.media_reader import SHOWN_MARKER
from jan_serve.generation.ports import EngineClient
from jan_serve.http.errors import http_problem
from jan_serve.http.replies import json_reply
from jan_serve.ipc.messages import DetokenizeRequest, TokenizeRequest

Order = Literal["latest", "slowest"]


class RequestLine(BaseModel):
    """One request. program: from its User-Agent. times in seconds; null until they are known.

    tokens_per_second: of the answer, from its first token on.
    """

    id: str
    state: State
    started_at: str
    route: str
    program: str
    model: str | None
    status: int | None
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    first_token_s: float | None
    total_s: float
    tokens_per_second: float | None
    error: str | None


class RequestLines(BaseModel):
    data: list[RequestLine]


class CauseLine(BaseModel):
    """code: stable. seconds: the time that it explains. advice: empty if there is nothing to do."""

    code: str
    seconds: float
    text: str
    advice: str


class Why(RequestLine):
    """phases: seconds before the engine (load, template, compile, media, growth) and in it (queue, reading, writing).
    `restart`, the wait for the next worker after the end of one, is part of the latter.

    cached_in: where the cached tokens were: in `cells` of the context, as a saved state in `ram` or on `disk`, or at
    another `server`. drafted_tokens, accepted_tokens: those of the answer that were guessed, and of them those that
    were right; forced_tokens: those that a grammar left no choice for. others_s: of the phases `reading` and
    `writing`, steps for other requests. causes: what explains the time, the longest first.
    """

    cached_in: CacheTier | None
    drafted_tokens: int
    accepted_tokens: int
    forced_tokens: int
    others_s: float

    phases: dict[str, float]
    causes: list[CauseLine]


class PromptText(BaseModel):
    """cached_characters: how many at the start of the text the cache had.

    null while the request runs, if the model has left memory, behind an image or a sound, and with several prompts.
    """

    text: str
    cached_characters: int | None


class Prompts(BaseModel):
    id: str
    model: str | None
    prompt_tokens: int
    cached_tokens: int
    prompts: list[PromptText]


class TotalLine(BaseModel):
    """The sums of one day (local time), model and program. prompt_tokens: cached ones included."""

    day: str
    model: str
    program: str
    requests: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


class TotalLines(BaseModel):
    data: list[TotalLine]


def activity_router(activities: Activities, totals: Callable[[], Totals], services: Services) -> APIRouter:
    router = APIRouter(tags=["Extras"])

    def own() -> list[Activity]:
        salt = cache_salt.get()
        return [each for each in activities.all() if each.owner == salt]

    def find(request_id: str) -> Activity:
        found = next((each for each in own() if each.record.request_id == request_id), None)
        if found is None:
            raise http_problem(
                404,
                "request_not_found",
                f"The last {KEPT} requests of this key have no id {request_id[:128]!r}.",
            )
        return found

    @router.get("/extras/requests", summary="Running and recent requests", response_model=RequestLines)
    async def requests(
        limit: Annotated[int, Query(ge=1, le=KEPT, description="Number of requests.")] = 50,
        order: Annotated[
            Order, Query(description="`latest` first, or `slowest` to the first token.")
        ] = "latest",
    ) -> Response:
        """Requests of this key that ask a model: those that run and the last that ended. Never their text."""
        found = own()
        if order == "slowest":
            found.sort(key=_time_felt, reverse=True)
        return json_reply({"data": [_line(each) for each in found[:limit]]})

    @router.get("/extras/totals", summary="Tokens a day", response_model=TotalLines)
    async def tokens_a_day(
        days: Annotated[int, Query(ge=1, le=400, description="Number of days that have any.")] = 30,
    ) -> Response:
        """Requests and tokens of this key by day, model and program, the latest day first. Kept over restarts."""
        rows = await totals().rows(cache_salt.get(), days)
        lines = [{"day": day, **msgspec.structs.asdict(row)} for day, row in rows]
        return json_reply(TotalLines.model_validate({"data": lines}).model_dump())

    @router.get(
        "/extras/why/{request_id}",
        summary="Why a request took its time",
        response_model=Why,
        responses={404: {"description": "No kept request of this key has the id."}},
    )
    async def why(request_id: str) -> Response:
        """Where the time of a request of this key went, and what can be done. `x-request-id` of an answer is its id."""
        found = find(request_id)
        work = found.record.work
        return json_reply(
            {
                **_line(found),
                "cached_in": work.cached_in,
                "others_s": work.others_s,
                **{f"{name}_tokens": getattr(work, name) for name in ("drafted", "accepted", "forced")},
                "phases": {span.name: span.seconds for span in found.phases()},
                "causes": [cause._asdict() for cause in causes(found, activities.all())],
            }
        )

    @router.get(
        "/extras/requests/{request_id}/prompt",
        summary="The rendered prompt of a request",
        response_model=Prompts,
        responses={404: {"description": "No request of this key has the id, or its prompt is not kept."}},
    )
    async def prompt(request_id: str) -> Response:
        """The prompt of a request of this key as the model reads it, if `keep_prompts` keeps it."""
        found = find(request_id)
        record = found.record
        kept = record.trace.prompts
        if not kept:
            raise http_problem(
                404,
                "prompt_not_kept",
                "The prompt is not kept. `keep_prompts` is the number of latest requests whose prompts are.",
            )
        # What the cache had is known at the end, as a sum over the prompts.
        cached = record.cached_tokens if len(kept) == 1 and found.status is not None else None
        async with _loaded_model(services.models, services.running, record.model) as client:
            shown = [await _shown_prompt(each, cached, client) for each in kept]
        facts = {name: getattr(record, name) for name in ("model", "prompt_tokens", "cached_tokens")}
        return json_reply({"id": request_id, **facts, "prompts": shown})

    return router


def _time_felt(activity: Activity) -> float:
    first = activity.record.first_token_s
    return first if first is not None else activity.ended - activity.began


def _line(activity: Activity) -> dict[str, object]:
    record = activity.record
    decode = record.decode_s
    return {
        "id": record.request_id,
        "state": activity.state(),
        "started_at": datetime.fromtimestamp(activity.arrived)
        .astimezone()
        .isoformat(timespec="milliseconds"),
        "route": activity.shown_route(),
        "program": activity.program,
        "model": record.model,
        "status": activity.status,
        "prompt_tokens": record.prompt_tokens,
        "cached_tokens": record.cached_tokens,
        "completion_tokens": record.completion_tokens or record.pieces,
        "first_token_s": record.first_token_s,
        "total_s": activity.ended - activity.began,
        "tokens_per_second": record.completion_tokens / decode
        if decode and record.completion_tokens
        else None,
        "error": record.error,
    }


@asynccontextmanager
async def _loaded_model(
    models: ServedModels, running: RunningRequests, name: str | None
) -> AsyncGenerator[EngineClient | None]:
    """The model, if it is in memory: a look at a prompt loads none."""
    if not any(each.name == name and each.state == "ready" for each in models.snapshot().models):
        yield None
        return
    async with AsyncExitStack() as stack:
        deadline = stack.enter_context(running.enter())
        yield await deadline.wait(stack.enter_async_context(models.lease(name)))


async def _shown_prompt(
    prompt: KeptPrompt, cached_tokens: int | None, client: EngineClient | None
) -> dict[str, object]:
    """A PromptText. client: None shows the ids of a prompt of tokens. Raises EngineFailure."""
    text = "".join([await _text(piece, client) for piece in prompt.pieces])
    cached = None if cached_tokens is None else await _cached_characters(prompt, cached_tokens, client)
    return {"text": text, "cached_characters": cached}


async def _text(piece: str | tuple[int, ...] | None, client: EngineClient | None) -> str:
    if isinstance(piece, tuple):
        return str(list(piece)) if client is None else await _text_of(piece, client)
    return SHOWN_MARKER if piece is None else piece


async def _text_of(ids: tuple[int, ...], client: EngineClient) -> str:
    return (await client.ask(DetokenizeRequest(tokens=ids, skip_special_tokens=False))).text


async def _cached_characters(prompt: KeptPrompt, left: int, client: EngineClient | None) -> int | None:
    """left: cached tokens. None behind an image or a sound, whose cells the text does not show."""
    characters = 0
    for number, piece in enumerate(prompt.pieces):
        if left <= 0:
            break
        if client is None or piece is None:
            return None
        if isinstance(piece, tuple):
            characters += len(await _text_of(piece[:left], client))
            left -= len(piece)
            continue
        request = TokenizeRequest(
            text=piece,
            add_special=prompt.add_special and number == 0,
            parse_special=prompt.parse_special,
            with_pieces=True,
        )
        tokens = (await client.ask(request)).pieces
        # Before the text may be BOS, or a blank of the tokeniser.
        start = b"".join(tokens).find(piece.encode())
        if start < 0:
            return None
        cached = b"".join(tokens[:left])[start : start + len(piece.encode())]
        characters += len(cached.decode(errors="ignore"))
        left -= len(tokens)
    return characters
