"""TGI's errors: `{error, error_type}` for what it validates itself, plain text for what its framework refuses."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

from starlette.responses import PlainTextResponse, Response

from jan_serve.api.dialects.tgi.generate.wire import ErrorBody
from jan_serve.api.errors import Problem
from jan_serve.api.http.replies import json_reply
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

_BYTE: Final = re.compile(r" \(byte \d+\)\Z")


class ValidationFailed(InvalidRequest):
    """A parameter that TGI refuses, in TGI's words."""

    code = "validation"


class ToolFailed(InvalidRequest):
    """Tools that cannot be used."""

    code = "tool_error"


class BatchTooLarge(InvalidRequest):
    """More prompts than one completion may have."""

    code = "batch_size_exceeded"


class SuffixNotSupported(InvalidRequest):
    """A completion with text behind its gap."""

    code = "suffix_not_supported"


def error_body(problem: Problem) -> ErrorBody:
    """The body."""
    match problem.error:
        case Overloaded():
            return {"error": "Model is overloaded", "error_type": "overloaded"}
        case TemplateError() as error:
            return {"error": f"Template error: {error.message}", "error_type": "template_error"}
        case ToolFailed() as error:
            return {"error": f"Tool error: {error.message}", "error_type": "tool_error"}
        case BatchTooLarge() as error:
            return {"error": error.message, "error_type": "batch size exceeded"}
        case SuffixNotSupported() as error:
            return {"error": error.message, "error_type": "suffix not supported"}
        case ContextLengthExceeded() as error:
            words = f"`inputs` must have less than {error.n_ctx} tokens. Given: {error.n_prompt}"
            return {"error": f"Input validation error: {error.which}{words}", "error_type": "validation"}
        case InvalidSchema() as error:
            words = f"Input validation error: grammar is not valid: {error.message}"
            return {"error": words, "error_type": "validation"}
        case UnsupportedSchema() | GrammarTooComplex() as error:
            words = f"Input validation error: cannot compile regex from schema: {error.message}"
            return {"error": words, "error_type": "validation"}
        case UnsupportedPattern():
            # There, a pattern is compiled by the engine.
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


def status_of(problem: Problem) -> int:
    """The status of a reply that is no stream."""
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


def _reason(message: str) -> str:
    reason = message.removeprefix("The request body is not valid JSON: ").removesuffix(".")
    return _BYTE.sub("", reason)


def render_error(problem: Problem) -> Response:
    """The response."""
    if problem.status == HTTPStatus.UNAUTHORIZED:
        return Response(status_code=HTTPStatus.UNAUTHORIZED)
    if isinstance(problem.error, InvalidJson):
        place = problem.error.place
        text = f"Failed to parse the request body as JSON: {_reason(problem.message)}"
        if place is not None:
            text += f" at line {place[0]} column {place[1]}"
        return PlainTextResponse(text, HTTPStatus.BAD_REQUEST)
    if problem.fields:
        text = f"Failed to deserialize the JSON body into the target type: {problem.fields[0].message}"
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
