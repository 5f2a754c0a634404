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
_IN_BAND_STATUS: Final = 422


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
    match problem.error:
        case Overloaded():
            return {"error": _OVERLOADED, "error_type": "overloaded"}
        case TemplateError() as error:
            return {"error": f"Template error: {error.message}", "error_type": "template_error"}
        case ToolFailed() as error:
            return {"error": f"Tool error: {error.message}", "error_type": "tool_error"}
        case BatchTooLarge() as error:
            return {"error": error.message, "error_type": "batch size exceeded"}
        case SuffixNotSupported() as error:
            return {"error": error.message, "error_type": "suffix not supported"}
        case ContextLengthExceeded() as error:
            text = f"`inputs` must have less than {error.n_ctx} tokens. Given: {error.length}"
            return {
                "error": f"Input validation error: {error.which}{text}. {error.remedy}".rstrip(". "),
                "error_type": "validation",
            }
        case InvalidSchema() as error:
            words = f"Input validation error: grammar is not valid: {error.message}"
            return {"error": words, "error_type": "validation"}
        case UnsupportedSchema() | GrammarTooComplex() as error:
            words = f"Input validation error: cannot compile regex from schema: {error.message}"
            return {"error": words, "error_type": "validation"}
        case UnsupportedPattern():
            # TGI compiles a pattern in its engine.
            words = f"Request failed during generation: {problem.message}"
            return {"error": words, "error_type": "generation"}
        case InvalidRequest() as error:
            return {"error": f"Input validation error: {error.message}", "error_type": "validation"}
        case EngineCrashed() | EngineStalled():
            return {"error": "Incomplete generation", "error_type": "incomplete_generation"}
        case EngineFailure():
            words = f"Request failed during generation: {problem.message}"
            return {"error": words, "error_type": "generation"}
        case _:
            return {"error": problem.message, "error_type": problem.code}


def stream_error_body(problem: Problem) -> ErrorBody:
    """The last event of a native stream that failed."""
    if isinstance(problem.error, EngineCrashed | EngineStalled):
        return {"error": "Incomplete generation stream", "error_type": "incomplete_generation_stream"}
    return error_body(problem)


def in_band_error(problem: Problem) -> dict[str, Any]:
    """The last event of a /v1 stream that failed. Its status is always 422."""
    return {"error": {"message": error_body(problem)["error"], "http_status_code": _IN_BAND_STATUS}}


def status_of(problem: Problem) -> int:
    """The status of a whole reply."""
    match problem.error:
        case UnsupportedPattern():
            return HTTPStatus.FAILED_DEPENDENCY
        case InvalidRequest():
            return HTTPStatus.UNPROCESSABLE_ENTITY
        case EngineCrashed() | EngineStalled():
            return HTTPStatus.INTERNAL_SERVER_ERROR
        case EngineFailure():
            return HTTPStatus.FAILED_DEPENDENCY
        case _:
            return problem.status


def render_error(problem: Problem) -> Response:
    if problem.status == HTTPStatus.UNAUTHORIZED:
        return Response(status_code=HTTPStatus.UNAUTHORIZED)
    if isinstance(problem.error, InvalidJson):
        reason = problem.message.removeprefix("The request body is not valid JSON: ").removesuffix(".")
        return PlainTextResponse(
            f"Failed to parse the request body as JSON: {reason}", HTTPStatus.BAD_REQUEST
        )
    if problem.fields:
        text = f"Failed to deserialize the JSON body into the target type: {summary_of(problem.fields)}"
        return PlainTextResponse(text, HTTPStatus.UNPROCESSABLE_ENTITY)
    if problem.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return PlainTextResponse(
            "Failed to buffer the request body: length limit exceeded", HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        )
    if problem.status == HTTPStatus.UNSUPPORTED_MEDIA_TYPE:
        return PlainTextResponse(
            "Expected request with `Content-Type: application/json`", HTTPStatus.UNSUPPORTED_MEDIA_TYPE
        )
    return json_reply(error_body(problem), status_of(problem))
