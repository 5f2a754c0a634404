"""Models that document the server's default error body.

OpenAI's `{"error": {message, type, param, code}}`, with `detail` on 401 and 422.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel


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


ERROR_BODY: Final[dict[str, Any]] = {
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}
}
"""FastAPI would build a validator of a model for each status of each route, so only status 400 has the model, and the
others refer to its schema."""
ERROR_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": ErrorBody, "description": "A value or the whole request is refused"},
    401: {**ERROR_BODY, "description": "A key is needed"},
    403: {**ERROR_BODY, "description": "Host or Origin is not allowed"},
    404: {**ERROR_BODY, "description": "There is no model"},
    413: {**ERROR_BODY, "description": "The body is too large"},
    415: {**ERROR_BODY, "description": "The body is not JSON"},
    422: {
        "model": ValidationErrorBody | ErrorBody,
        "description": "The request breaks the schema, or the model's file cannot be used",
    },
    429: {**ERROR_BODY, "description": "The queue is full"},
    503: {**ERROR_BODY, "description": "Loading failed, or the server stops"},
    504: {**ERROR_BODY, "description": "The request took too long"},
}
"""For the OpenAPI document of every route with this body."""
