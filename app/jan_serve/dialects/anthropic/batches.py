"""/v1/messages/batches: Anthropic's Message Batches, with the lines of their requests and results."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.core.caller import cache_salt
from jan_serve.core.trace import current_trace
from jan_serve.dialects.anthropic.errors import REQUEST_ID_HEADER
from jan_serve.dialects.anthropic.model_pages import listed
from jan_serve.dialects.shared.batch_lines import MAX_LINES, Faults, embedded, json_lines, no_batch, own_batch
from jan_serve.dialects.shared.wire_types import AtMost, FirstError, WireModel
from jan_serve.errors import InvalidRequest
from jan_serve.http.replies import json_reply
from jan_serve.http.request_record import record_of
from jan_serve.journal.batch_runner import BatchRunner, FaultyInput
from jan_serve.journal.batches import Batch, BatchFacts, EndedLine, Line, State
from jan_serve.journal.files import FileTable
from jan_serve.journal.tables import Mark, PageRequest

PATH: Final = "/v1/messages"
_CUSTOM_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def batch_lines(requests: Sequence[tuple[str, dict[str, Any]]]) -> list[Line]:
    """requests: their ids and parameters. Raises FaultyInput, with lines from 0."""
    faults, lines = Faults(), list[Line]()
    faults.count(len(requests))
    for number, (custom_id, params) in enumerate(requests):
        if _CUSTOM_ID.fullmatch(custom_id) is None:
            faults.add(
                "invalid_custom_id",
                "custom_id: it must have 1 to 64 letters, digits, `_` or `-`",
                number,
                "custom_id",
            )
        faults.custom_id(custom_id, number)
        lines.append(Line(custom_id, PATH, faults.body(params, number, "params")))
    faults.check()
    return lines


class AnthropicForm:
    """See BatchForm. All results are in one file."""

    def lines(self, batch: Batch, content: bytes) -> list[Line]:
        raise TypeError("lines of this dialect come checked")

    def outputs(self, batch: Batch, lines: Iterable[EndedLine], end: State) -> tuple[bytes, bytes]:
        return json_lines({"custom_id": line.custom_id, "result": _result(line, end)} for line in lines), b""


def _result(line: EndedLine, end: State) -> dict[str, Any]:
    if line.reply is None:
        return {"type": "expired" if end == "expired" else "canceled"}
    body = embedded(line.reply.body)
    if line.reply.status < HTTPStatus.BAD_REQUEST:
        return {"type": "succeeded", "message": body}
    return {"type": "errored", "error": body}


DIALECT: Final = "anthropic"
_PATH: Final = "/v1/messages/batches"
_WINDOW_S: Final = 86_400


class BatchedMessage(WireModel):
    """params: a request to /v1/messages, which is checked when it is answered."""

    custom_id: str
    params: dict[str, Any]


class CreateMessageBatchRequest(WireModel):
    """Requests to be answered while nobody else needs the model."""

    requests: Annotated[list[BatchedMessage], FirstError(), AtMost(MAX_LINES, "requests")]


class MessageBatchCounts(TypedDict):
    processing: int
    succeeded: int
    errored: int
    canceled: int
    expired: int


class MessageBatch(TypedDict):
    """Times are as in RFC 3339. results_url: once it has ended."""

    id: str
    type: Literal["message_batch"]
    processing_status: Literal["in_progress", "canceling", "ended"]
    request_counts: MessageBatchCounts
    ended_at: str | None
    created_at: str
    expires_at: str
    archived_at: None
    cancel_initiated_at: str | None
    results_url: str | None


class MessageBatchPage(TypedDict):
    data: list[MessageBatch]
    has_more: bool
    first_id: str | None
    last_id: str | None


class DeletedMessageBatch(TypedDict):
    id: str
    type: Literal["message_batch_deleted"]


def add_batch_routes(router: APIRouter, runner: BatchRunner, files: FileTable) -> None:
    table, found = runner.table, partial(own_batch, runner.table, DIALECT)

    @router.post(_PATH, summary="Create a batch", response_model=MessageBatch)
    async def create_batch(request: Request, body: CreateMessageBatchRequest) -> Response:
        """Answer messages when nobody else needs the model."""
        now = int(time.time())
        try:
            requests = [(each.custom_id, each.params) for each in body.requests]
            lines = await asyncio.to_thread(batch_lines, requests)
        except FaultyInput as error:
            fault = error.faults[0]
            where = "requests: " if fault.line is None else f"requests[{fault.line}]."
            raise InvalidRequest(where + fault.message, param="requests") from None
        model = body.requests[0].params.get("model")
        batch = Batch(
            id=f"msgbatch_{uuid.uuid4().hex}",
            owner=cache_salt.get(),
            dialect=DIALECT,
            state="in_progress",
            created=now,
            expires=now + _WINDOW_S,
            facts=BatchFacts(
                model=model if isinstance(model, str) and model else None, trace=current_trace().context
            ),
        )
        await table.add(batch, None, lines)
        runner.wake()
        return _reply(request, _shown(request, await found(batch.id)))

    @router.get(_PATH, summary="Batches", response_model=MessageBatchPage)
    async def list_batches(
        request: Request,
        limit: Annotated[int, Query(ge=1, le=1_000)] = 20,
        after_id: str | None = None,
        before_id: str | None = None,
    ) -> Response:
        """List the batches, the latest first."""
        after, before = (
            Mark(field, value) if value is not None else None
            for field, value in (("after_id", after_id), ("before_id", before_id))
        )
        batches, has_more = await table.page(cache_salt.get(), DIALECT, PageRequest(limit, after, before))
        return _reply(request, listed([_shown(request, batch) for batch in batches], has_more))

    @router.get(f"{_PATH}/{{batch_id}}", summary="Batch", response_model=MessageBatch)
    async def get_batch(request: Request, batch_id: str) -> Response:
        """Get the state of a batch."""
        return _reply(request, _shown(request, await found(batch_id)))

    @router.get(
        f"{_PATH}/{{batch_id}}/results",
        summary="Results of a batch",
        responses={200: {"content": {"application/x-jsonl": {}}}},
    )
    async def get_results(request: Request, batch_id: str) -> Response:
        """Get the results of a batch that has ended, as JSON lines in the order of the requests."""
        batch = await found(batch_id)
        if not batch.has_ended:
            raise InvalidRequest(f"The batch {batch_id[:100]!r} has not ended: it has no results yet.")
        file = batch.facts.output_file
        content = await files.content(batch.owner, file) if file is not None else None
        if content is None:
            raise no_batch(batch_id)
        headers = {REQUEST_ID_HEADER: record_of(request.scope).request_id}
        return Response(content, media_type="application/x-jsonl", headers=headers)

    @router.post(f"{_PATH}/{{batch_id}}/cancel", summary="Cancel a batch", response_model=MessageBatch)
    async def cancel_batch(request: Request, batch_id: str) -> Response:
        """End a batch. Messages that are answered by then stay."""
        return _reply(request, _shown(request, await runner.cancel(await found(batch_id))))

    @router.delete(f"{_PATH}/{{batch_id}}", summary="Delete a batch", response_model=DeletedMessageBatch)
    async def delete_batch(request: Request, batch_id: str) -> Response:
        """Delete a batch that has ended, and its results."""
        batch = await found(batch_id)
        if not await table.delete(batch.owner, batch_id):
            raise InvalidRequest(f"The batch {batch_id[:100]!r} has not ended: cancel it first.")
        return _reply(request, {"id": batch_id, "type": "message_batch_deleted"})


def _reply(request: Request, body: Any) -> Response:
    return json_reply(body, headers={REQUEST_ID_HEADER: record_of(request.scope).request_id})


def _time(seconds: int | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _shown(request: Request, batch: Batch) -> MessageBatch:
    counts, times = batch.facts.counts, batch.facts.times
    left = counts.total - counts.done
    ended = times.get(batch.state) if batch.has_ended else None
    url = f"{str(request.base_url).rstrip('/')}{_PATH}/{batch.id}/results"
    running = "canceling" if batch.state == "cancelling" else "in_progress"
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": "ended" if batch.has_ended else running,
        "request_counts": {
            "processing": 0 if batch.has_ended else left,
            "succeeded": counts.done - counts.failed,
            "errored": counts.failed,
            "canceled": left if batch.state == "cancelled" else 0,
            "expired": left if batch.state == "expired" else 0,
        },
        "ended_at": _time(ended),
        "created_at": _time(batch.created) or "",
        "expires_at": _time(batch.expires) or "",
        "archived_at": None,
        "cancel_initiated_at": _time(times.get("cancelling")),
        "results_url": url if batch.has_ended else None,
    }
