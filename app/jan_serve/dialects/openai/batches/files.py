"""/v1/files: the inputs and outputs of batches."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.core.caller import cache_salt
from jan_serve.dialects.openai.pages import Page, listed
from jan_serve.errors import InvalidRequest
from jan_serve.http.errors import HttpError, http_problem
from jan_serve.http.multipart import FormField, form_fields
from jan_serve.http.replies import json_reply
from jan_serve.journal.files import FileTable, StoredFile, new_file
from jan_serve.journal.tables import KEPT_S, Mark, PageRequest

PURPOSE: Final = "batch"
_MIN_TTL_S: Final = 3_600
_MAX_TTL_S: Final = 30 * 86_400
_FIELDS: Final = frozenset({"file", "purpose", "expires_after[anchor]", "expires_after[seconds]"})
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


def add_file_routes(router: APIRouter, files: FileTable) -> None:
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
        return json_reply(_shown(file))

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
        return json_reply(listed([_shown(file) for file in shown], has_more))

    @router.get("/v1/files/{file_id}", summary="File", response_model=FileObject)
    async def get_file(file_id: str) -> Response:
        """Get the facts of a file."""
        file = await files.find(cache_salt.get(), file_id)
        if file is None:
            raise no_file(file_id)
        return json_reply(_shown(file))

    @router.get(
        "/v1/files/{file_id}/content",
        summary="Content of a file",
        responses={200: {"content": {"application/octet-stream": {}}}},
    )
    async def get_content(file_id: str) -> Response:
        """Get a file."""
        content = await files.content(cache_salt.get(), file_id)
        if content is None:
            raise no_file(file_id)
        return Response(content, media_type="application/octet-stream")

    @router.delete("/v1/files/{file_id}", summary="Delete a file", response_model=DeletedFile)
    async def delete_file(file_id: str) -> Response:
        """Delete a file. A batch that was made of it is unaffected."""
        if not await files.delete(cache_salt.get(), file_id):
            raise no_file(file_id)
        return json_reply({"id": file_id, "object": "file", "deleted": True})


def no_file(file_id: str) -> HttpError:
    return http_problem(HTTPStatus.NOT_FOUND, "file_not_found", f"There is no file {file_id[:100]!r}.")


def _shown(file: StoredFile) -> FileObject:
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
        if field.name not in _FIELDS:
            raise InvalidRequest(f"{field.name[:100]}: no field of this form", param=field.name[:100])
        if field.name in found:
            raise InvalidRequest(f"{field.name}: given twice", param=field.name)
        found[field.name] = field
    for name in ("file", "purpose"):
        if name not in found:
            raise InvalidRequest(f"{name}: the form lacks it", param=name)
    purpose = found["purpose"].text()
    if purpose != PURPOSE:
        raise InvalidRequest(
            f"purpose: {purpose[:80]!r} has no use here; it must be {PURPOSE}", param="purpose"
        )
    if not found["file"].data.strip():
        raise InvalidRequest("file: it is empty", param="file")
    seconds = found.get("expires_after[seconds]")
    return found["file"], KEPT_S if seconds is None else _seconds(seconds.text())


def _seconds(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and _MIN_TTL_S <= int(text) <= _MAX_TTL_S):
        raise InvalidRequest(
            f"expires_after[seconds]: a number from {_MIN_TTL_S} to {_MAX_TTL_S}",
            param="expires_after[seconds]",
        )
    return int(text)
