"""/v1/batches: create, get, list and cancel."""

from __future__ import annotations

import re
import time
import uuid
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.core.caller import cache_salt
from jan_serve.core.trace import current_trace
from jan_serve.dialects.openai.batches.files import add_file_routes, no_file
from jan_serve.dialects.openai.pages import Page, listed
from jan_serve.dialects.openai.parse_common import check_metadata
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.batch_lines import own_batch
from jan_serve.dialects.shared.wire_types import AtMost, Between, Int, WireModel
from jan_serve.errors import InvalidRequest
from jan_serve.http.errors import http_problem
from jan_serve.http.replies import json_reply
from jan_serve.journal.batch_runner import BatchRunner
from jan_serve.journal.batches import Batch, BatchFacts, State
from jan_serve.journal.files import FileTable
from jan_serve.journal.tables import Mark, PageRequest

DIALECT: Final = "openai"
_WINDOW: Final = re.compile(r"([1-9]\d{0,3})([hd])")
_MAX_WINDOW_S: Final = 30 * 86_400
_STATES: Final[tuple[tuple[State, str], ...]] = (
    ("in_progress", "in_progress_at"),
    ("completed", "completed_at"),
    ("failed", "failed_at"),
    ("expired", "expired_at"),
    ("cancelling", "cancelling_at"),
    ("cancelled", "cancelled_at"),
)


class ExpiresAfter(WireModel):
    anchor: Literal["created_at"]
    seconds: Annotated[Int, Between(3_600, _MAX_WINDOW_S)]


class CreateBatchRequest(WireModel):
    """Requests of a file, to be answered while nobody else needs the model."""

    input_file_id: str
    endpoint: Literal["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"]
    completion_window: Annotated[
        str,
        Field(description="Time after which the rest expires: `24h`; other hours and days up to `30d`, too."),
    ] = "24h"
    metadata: Annotated[dict[str, str], AtMost(limits.MAX_METADATA, "metadata")] | None = None
    output_expires_after: ExpiresAfter | None = None


class RequestCounts(TypedDict):
    total: int
    completed: int
    failed: int


class BatchObject(TypedDict):
    """errors: of the input. paused: why no line begins at the moment; null if nothing forbids it."""

    id: str
    object: Literal["batch"]
    endpoint: str
    model: str | None
    errors: dict[str, Any] | None
    input_file_id: str | None
    completion_window: str
    status: str
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    metadata: dict[str, str] | None
    paused: str | None


def add_batch_routes(router: APIRouter, runner: BatchRunner, files: FileTable) -> None:
    add_file_routes(router, files)
    table, found = runner.table, partial(own_batch, runner.table, DIALECT)

    @router.post("/v1/batches", summary="Create a batch", response_model=BatchObject)
    async def create_batch(body: CreateBatchRequest) -> Response:
        """Answer the requests of a file, when nobody else needs the model."""
        owner, now = cache_salt.get(), int(time.time())
        window_s = _window_s(body.completion_window)
        check_metadata(body.metadata or {})
        content = await files.content(owner, body.input_file_id)
        if content is None:
            raise no_file(body.input_file_id)
        ttl = body.output_expires_after
        facts = BatchFacts(
            endpoint=body.endpoint,
            window=body.completion_window,
            metadata=body.metadata,
            input_file=body.input_file_id,
            output_ttl_s=ttl.seconds if ttl is not None else None,
            trace=current_trace().context,
        )
        batch = Batch(
            id=f"batch_{uuid.uuid4().hex}",
            owner=owner,
            dialect=DIALECT,
            state="validating",
            created=now,
            expires=now + window_s,
            facts=facts,
        )
        await table.add(batch, content)
        runner.wake()
        return json_reply(_shown(batch, runner))

    @router.get("/v1/batches", summary="Batches", response_model=Page)
    async def list_batches(
        after: str | None = None, limit: Annotated[int, Query(ge=1, le=100)] = 20
    ) -> Response:
        """List the batches, the latest first."""
        asked = PageRequest(limit, Mark("after", after) if after is not None else None)
        batches, has_more = await table.page(cache_salt.get(), DIALECT, asked)
        return json_reply(listed([_shown(batch, runner) for batch in batches], has_more))

    @router.get("/v1/batches/{batch_id}", summary="Batch", response_model=BatchObject)
    async def get_batch(batch_id: str) -> Response:
        """Get the state of a batch."""
        return json_reply(_shown(await found(batch_id), runner))

    @router.post("/v1/batches/{batch_id}/cancel", summary="Cancel a batch", response_model=BatchObject)
    async def cancel_batch(batch_id: str) -> Response:
        """End a batch. Its files have what is answered by then."""
        batch = await runner.cancel(await found(batch_id))
        if batch.has_ended:
            raise http_problem(HTTPStatus.CONFLICT, "batch_ended", f"The batch is {batch.state} already.")
        return json_reply(_shown(batch, runner))


def _window_s(text: str) -> int:
    window = _WINDOW.fullmatch(text)
    seconds = int(window[1]) * (3_600 if window[2] == "h" else 86_400) if window is not None else 0
    if not 0 < seconds <= _MAX_WINDOW_S:
        raise InvalidRequest(
            "completion_window: 24h, or another number of hours or days up to 30d", param="completion_window"
        )
    return seconds


def _shown(batch: Batch, runner: BatchRunner) -> BatchObject:
    facts = batch.facts
    faults = [
        {"code": fault.code, "message": fault.message, "param": fault.param, "line": fault.line}
        for fault in facts.faults
    ]
    times: Any = {name: facts.times.get(state) for state, name in _STATES}
    shown: Any = {
        "id": batch.id,
        "object": "batch",
        "endpoint": facts.endpoint,
        "model": facts.model,
        "errors": {"object": "list", "data": faults} if faults else None,
        "input_file_id": facts.input_file,
        "completion_window": facts.window,
        "status": batch.state,
        "output_file_id": facts.output_file,
        "error_file_id": facts.error_file,
        "created_at": batch.created,
        "expires_at": batch.expires,
        "finalizing_at": times["completed_at"],
        **times,
        "request_counts": {
            "total": facts.counts.total,
            "completed": facts.counts.done - facts.counts.failed,
            "failed": facts.counts.failed,
        },
        "metadata": facts.metadata,
        "paused": None if batch.has_ended else runner.paused.get(batch.id),
    }
    return shown
