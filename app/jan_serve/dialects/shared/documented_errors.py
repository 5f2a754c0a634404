"""The errors of routes, for the OpenAPI document, and models of the server's default error body, OpenAI's."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, TypeAdapter

Responses = dict[int | str, dict[str, Any]]
_MEANINGS: Final[dict[int | str, str]] = {
    400: "A value or the whole request is refused",
    401: "A key is needed",
    403: "Host or Origin is not allowed, or the hub refuses access",
    404: "There is no model",
    409: "The model is in use",
    413: "The body is too large",
    415: "The body is not JSON",
    422: "The request breaks the schema, or the model's file cannot be used",
    424: "Generation failed",
    429: "The queue is full",
    500: "The server failed",
    502: "The hub's answer is wrong",
    503: "Loading failed, or the server stops",
    504: "The request took too long",
    507: "The disk has no room",
    529: "The queue is full, loading failed, or the server stops",
}
USUAL: Final = (400, 401, 403, 404, 413, 415, 422, 429, 500, 503, 504)
MANAGING: Final = (*USUAL, 409, 502, 507)


def documented_errors(
    body: Any, statuses: tuple[int, ...] = USUAL, special: Responses | None = None
) -> Responses:
    """body: the type of the JSON. special: the statuses that have something else."""
    schema = TypeAdapter(body).json_schema()
    named = "$defs" in schema
    if named:
        schema = {"$ref": f"#/components/schemas/{body.__name__}"}
    plain = {"content": {"application/json": {"schema": schema}}}
    # FastAPI would build a validator of a model for each status of each route, so only status 400 has the model.
    forms = {**dict.fromkeys(statuses, plain), **({400: {"model": body}} if named else {}), **(special or {})}
    return {status: {"description": _MEANINGS[status], **form} for status, form in forms.items()}


class FieldErrorBody(BaseModel):
    """A field that breaks the schema."""

    loc: list[str | int]
    msg: str
    type: str


class ErrorDetail(BaseModel):
    """The error, in OpenAI's form."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    error: ErrorDetail


class ValidationErrorBody(ErrorBody):
    """A request that breaks the schema: the common form, and the fields."""

    detail: list[FieldErrorBody]


DEFAULT_ERRORS: Final = documented_errors(
    ErrorBody, special={422: {"model": ValidationErrorBody | ErrorBody}}
)
"""Documented errors of every route with this body."""
