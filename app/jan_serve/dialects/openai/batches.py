"""/v1/files and /v1/batches: OpenAI's Batch API, and the lines of its input, output and error files."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterable
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal, TypeVar, cast

import msgspec
from fastapi import APIRouter, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.core.caller import cache_salt
from jan_serve.core.trace import current_trace
from jan_serve.dialects.openai.dialect import OpenAIParts
from jan_serve.dialects.openai.parse_common import check_metadata
from jan_serve.dialects.openai.render_common import Page, listed
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.batch_lines import MAX_LINES, Faults, embedded, json_lines, own_batch
from jan_serve.dialects.shared.wire_types import AtMost, Between, Int, WireModel, wrong
from jan_serve.http.errors import http_problem
from jan_serve.http.multipart import FormField, form_fields
from jan_serve.http.replies import json_reply
from jan_serve.journal.batch_runner import BatchRunner
from jan_serve.journal.batches import Batch, BatchFacts, EndedLine, Line, State
from jan_serve.journal.files import FileTable, StoredFile, new_file
from jan_serve.journal.tables import KEPT_S, Mark, PageRequest

T = TypeVar("T")

PURPOSE: Final = "batch"
DIALECT: Final = "openai"
_MIN_TTL_S: Final = 3_600
_MAX_TTL_S: Final = 30 * 86_400
_WINDOW: Final = re.compile(r"([1-9]\d{0,3})([hd])")
_STATES: Final[tuple[State, ...]] = (
    "in_progress",
    "completed",
    "failed",
    "expired",
    "cancelling",
    "cancelled",
)
_UNDONE: Final[dict[State, tuple[str, str]]] = {
    "expired": ("batch_expired", "This request was not answered before the completion window ended."),
    "cancelled": ("batch_cancelled", "This request was not answered before the batch was cancelled."),
}
FORM_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["file", "purpose"],
    "properties": {
        "file": {"type": "string", "format": "binary", "description": "JSON lines."},
        "purpose": {"type": "string", "enum": [PURPOSE]},
        "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
        "expires_after[seconds]": {"type": "integer", "minimum": _MIN_TTL_S, "maximum": _MAX_TTL_S},
    },
}


class FileObject(TypedDict):
    """expires_at: null if it stays until it is deleted."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: str
    status: Literal["processed"]
    status_details: None


class DeletedFile(TypedDict):
    id: str
    object: Literal["file"]
    deleted: Literal[True]


class ExpiresAfter(WireModel):
    anchor: Literal["created_at"]
    seconds: Annotated[Int, Between(_MIN_TTL_S, _MAX_TTL_S)]


class CreateBatchRequest(WireModel):
    """Requests of a file, to be answered while nobody else needs the model."""

    input_file_id: str
    endpoint: Literal["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"]
    completion_window: str = Field(
        "24h", description="Time after which the rest expires: `24h`; other hours and days up to `30d`, too."
    )
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


def _add_file_routes(router: APIRouter, files: FileTable) -> None:
    @router.post(
        "/v1/files",
        summary="Upload a file",
        response_model=FileObject,
        openapi_extra={
            "requestBody": {"content": {"multipart/form-data": {"schema": FORM_SCHEMA}}, "required": True}
        },
    )
    async def create_file(request: Request) -> Response:
        """Store the input of a batch."""
        fields = form_fields(request.headers.get("content-type", ""), await request.body())
        now = int(time.time())
        upload, ttl_s = _upload(fields)
        name = upload.filename[-255:] or "file"
        file = new_file(cache_salt.get(), now, PURPOSE, name, len(upload.data), now + ttl_s)
        await files.add(file, upload.data)
        return json_reply(_shown_file(file))

    @router.get("/v1/files", summary="Files", response_model=Page)
    async def list_files(
        after: str | None = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
        order: Literal["asc", "desc"] = "desc",
        purpose: str | None = None,
    ) -> Response:
        """List the stored files, the latest first."""
        mark = Mark("after", after) if after is not None else None
        asked = PageRequest(limit, mark, ascends=order == "asc")
        shown, has_more = await files.page(cache_salt.get(), asked, purpose)
        return json_reply(listed([_shown_file(file) for file in shown], has_more))

    @router.get("/v1/files/{file_id}", summary="File", response_model=FileObject)
    async def get_file(file_id: str) -> Response:
        """Get the facts of a file."""
        return json_reply(_shown_file(_present(await files.find(cache_salt.get(), file_id), file_id)))

    @router.get(
        "/v1/files/{file_id}/content",
        summary="Content of a file",
        responses={200: {"content": {"application/octet-stream": {}}}},
    )
    async def get_content(file_id: str) -> Response:
        """Get a file."""
        content = _present(await files.content(cache_salt.get(), file_id), file_id)
        return Response(content, media_type="application/octet-stream")

    @router.delete("/v1/files/{file_id}", summary="Delete a file", response_model=DeletedFile)
    async def delete_file(file_id: str) -> Response:
        """Delete a file. A batch that was made of it is unaffected."""
        _present(await files.delete(cache_salt.get(), file_id) or None, file_id)
        return json_reply({"id": file_id, "object": "file", "deleted": True})


def _present(found: T | None, file_id: str) -> T:
    if found is None:
        raise http_problem(HTTPStatus.NOT_FOUND, "file_not_found", f"There is no file {file_id[:100]!r}.")
    return found


def _shown_file(file: StoredFile) -> FileObject:
    return {
        "id": file.id,
        "object": "file",
        "bytes": file.size,
        "created_at": file.created,
        "expires_at": file.expires,
        "filename": file.name,
        "purpose": file.purpose,
        "status": "processed",
        "status_details": None,
    }


def _upload(fields: list[FormField]) -> tuple[FormField, int]:
    """The file, and how long it stays. Raises InvalidRequest."""
    found: dict[str, FormField] = {}
    for field in fields:
        if field.name not in FORM_SCHEMA["properties"]:
            raise wrong(field.name[:100], "no field of this form")
        if field.name in found:
            raise wrong(field.name, "given twice")
        found[field.name] = field
    for name in ("file", "purpose"):
        if name not in found:
            raise wrong(name, "the form lacks it")
    purpose = found["purpose"].text()
    if purpose != PURPOSE:
        raise wrong("purpose", f"{purpose[:80]!r} has no use here; it must be {PURPOSE}")
    if not found["file"].data.strip():
        raise wrong("file", "it is empty")
    seconds = found.get("expires_after[seconds]")
    return found["file"], KEPT_S if seconds is None else _seconds(seconds.text())


def _seconds(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and _MIN_TTL_S <= int(text) <= _MAX_TTL_S):
        raise wrong("expires_after[seconds]", f"a number from {_MIN_TTL_S} to {_MAX_TTL_S}")
    return int(text)


def add_routes(router: APIRouter, parts: OpenAIParts) -> None:
    runner, files = parts.services.batches, FileTable(parts.services.background.journal)
    _add_file_routes(router, files)
    table, found = runner.table, partial(own_batch, runner.table, DIALECT)

    @router.post("/v1/batches", summary="Create a batch", response_model=BatchObject)
    async def create_batch(body: CreateBatchRequest) -> Response:
        """Answer the requests of a file, when nobody else needs the model."""
        owner, now = cache_salt.get(), int(time.time())
        window_s = _window_s(body.completion_window)
        check_metadata(body.metadata or {})
        content = _present(await files.content(owner, body.input_file_id), body.input_file_id)
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
    if not 0 < seconds <= _MAX_TTL_S:
        raise wrong("completion_window", "24h, or another number of hours or days up to 30d")
    return seconds


def _shown(batch: Batch, runner: BatchRunner) -> BatchObject:
    facts = batch.facts
    faults = msgspec.to_builtins(facts.faults)
    times: Any = {f"{state}_at": facts.times.get(state) for state in _STATES}
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


class OpenAIForm:
    """OpenAI's form of batches."""

    def lines(self, batch: Batch, content: bytes) -> list[Line]:
        faults, lines = Faults(), list[Line]()
        rows = [(number, row) for number, row in enumerate(content.splitlines(), 1) if row.strip()]
        faults.count(len(rows))
        for number, row in rows[: MAX_LINES + 1]:
            try:
                value: Any = msgspec.json.decode(row)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                faults.add("invalid_json_line", "This line is not valid JSON.", number)
                continue
            if not isinstance(value, dict):
                faults.add("invalid_json_line", "This line is no JSON object.", number)
                continue
            lines.append(_line(cast(dict[str, Any], value), number, batch.facts.endpoint, faults))
        faults.check()
        return lines

    def outputs(self, batch: Batch, lines: Iterable[EndedLine], end: State) -> tuple[bytes, bytes]:
        answers, errors = list[Any](), list[Any]()
        for line in lines:
            row = _row(batch, line, end)
            is_good = line.reply is not None and line.reply.status < HTTPStatus.BAD_REQUEST
            (answers if is_good else errors).append(row)
        return json_lines(answers), json_lines(errors)


def _line(value: dict[str, Any], number: int, endpoint: str, faults: Faults) -> Line:
    if value.get("method") != "POST":
        faults.add("invalid_method", "method: POST is the only one", number, "method")
    if value.get("url") != endpoint:
        faults.add(
            "mismatched_endpoint", f"url: must be {endpoint}, the endpoint of the batch", number, "url"
        )
    custom_id = faults.custom_id(value.get("custom_id"), number)
    return Line(custom_id, endpoint, faults.body(value.get("body"), number, "body"))


def _row(batch: Batch, line: EndedLine, end: State) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": f"batch_req_{batch.id.removeprefix('batch_')}_{line.number}",
        "custom_id": line.custom_id,
        "response": None,
        "error": None,
    }
    if line.reply is None:
        code, message = _UNDONE[end]
        row["error"] = {"code": code, "message": message}
    else:
        row["response"] = {
            "status_code": line.reply.status,
            "request_id": line.reply.request_id,
            "body": embedded(line.reply.body),
        }
    return row
