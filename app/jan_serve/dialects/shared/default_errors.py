"""Models that document the server's default error body.

OpenAI's `{"error": {message, type, param, code}}`, with `detail` on 401 and 422.
"""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel

from jan_serve.dialects.shared.error_responses import error_responses


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


DEFAULT_ERRORS: Final = error_responses(ErrorBody, special={422: {"model": ValidationErrorBody | ErrorBody}})
"""Documented errors of every route with this body."""
