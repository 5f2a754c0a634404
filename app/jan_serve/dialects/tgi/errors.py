"""TGI's errors: `{error, error_type}` for values that TGI checks, plain text for what its framework rejects.

Texts of the request are not repeated: they may be long, or private.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from starlette.responses import PlainTextResponse, Response
from typing_extensions import TypedDict

from jan_serve.errors import (
    ContextLengthExceeded,
    EngineCrashed,
    EngineFailure,
    EngineStalled,
    GrammarTooComplex,
    InvalidJson,
    InvalidRequest,
    InvalidSchema,
    Overloaded,
    TemplateError,
    UnsupportedPattern,
    UnsupportedSchema,
)
from jan_serve.http.errors import Problem, summary_of
from jan_serve.http.replies import json_reply

_OVERLOADED: Final = "Model is overloaded"
_INVALID: Final = "Input validation error: "


class ErrorBody(TypedDict):
    """A failure and its kind, by which clients choose an exception."""

    error: str
    error_type: str


class ValidationFailed(InvalidRequest, code="validation"):
    """A parameter that TGI refuses; the message is TGI's text."""


class ToolFailed(InvalidRequest, code="tool_error"):
    """Tools that cannot be used."""


class BatchTooLarge(InvalidRequest, code="batch_size_exceeded"):
    """Too many prompts in one completion."""


class SuffixNotSupported(InvalidRequest, code="suffix_not_supported"):
    """A completion with a suffix."""


def overloaded() -> Overloaded:
    """More requests than max_concurrent_requests."""
    return Overloaded(_OVERLOADED)


def error_body(problem: Problem) -> ErrorBody:
    text, kind = problem.message, "validation"
    match problem.error:
        case Overloaded():
            text, kind = _OVERLOADED, "overloaded"
        case TemplateError() as error:
            text, kind = f"Template error: {error.message}", "template_error"
        case ToolFailed() as error:
            text, kind = f"Tool error: {error.message}", "tool_error"
        case BatchTooLarge() | SuffixNotSupported() as error:
            text, kind = error.message, error.code.replace("_", " ")
        case ContextLengthExceeded() as error:
            text = f"{error.which}`inputs` must have less than {error.n_ctx} tokens. Given: {error.length}"
            text = f"{_INVALID}{text}. {error.remedy}".rstrip(". ")
        case InvalidSchema() as error:
            text = f"{_INVALID}grammar is not valid: {error.message}"
        case UnsupportedSchema() | GrammarTooComplex() as error:
            text = f"{_INVALID}cannot compile regex from schema: {error.message}"
        case EngineCrashed() | EngineStalled():
            text, kind = "Incomplete generation", "incomplete_generation"
        case UnsupportedPattern() | EngineFailure():  # TGI compiles a pattern in its engine
            text, kind = f"Request failed during generation: {text}", "generation"
        case InvalidRequest() as error:
            text = f"{_INVALID}{error.message}"
        case _:
            kind = problem.code
    return {"error": text, "error_type": kind}


def stream_error_body(problem: Problem) -> ErrorBody:
    """The last event of a native stream that failed."""
    if isinstance(problem.error, EngineCrashed | EngineStalled):
        return {"error": "Incomplete generation stream", "error_type": "incomplete_generation_stream"}
    return error_body(problem)


def in_band_error(problem: Problem) -> dict[str, Any]:
    """The last event of a /v1 stream that failed. Its status is always 422."""
    return {"error": {"message": error_body(problem)["error"], "http_status_code": 422}}


def status_of(problem: Problem) -> int:
    """The status of a whole reply."""
    match problem.error:
        case EngineCrashed() | EngineStalled():
            return HTTPStatus.INTERNAL_SERVER_ERROR
        case UnsupportedPattern() | EngineFailure():
            return HTTPStatus.FAILED_DEPENDENCY
        case InvalidRequest():
            return HTTPStatus.UNPROCESSABLE_ENTITY
        case _:
            return problem.status


_PLAIN: Final = {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "Failed to buffer the request body: length limit exceeded",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "Expected request with `Content-Type: application/json`",
}


def render_error(problem: Problem) -> Response:
    if problem.status == HTTPStatus.UNAUTHORIZED:
        return Response(status_code=HTTPStatus.UNAUTHORIZED)
    if isinstance(problem.error, InvalidJson):
        reason = problem.message.removeprefix("The request body is not valid JSON: ").removesuffix(".")
        text = f"Failed to parse the request body as JSON: {reason}"
        return PlainTextResponse(text, HTTPStatus.BAD_REQUEST)
    if problem.fields:
        text = f"Failed to deserialize the JSON body into the target type: {summary_of(problem.fields)}"
        return PlainTextResponse(text, HTTPStatus.UNPROCESSABLE_ENTITY)
    if problem.status in _PLAIN:
        return PlainTextResponse(_PLAIN[HTTPStatus(problem.status)], problem.status)
    return json_reply(error_body(problem), status_of(problem))
