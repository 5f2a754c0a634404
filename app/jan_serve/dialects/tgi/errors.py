"""TGI's errors: `{error, error_type}` for values that TGI checks, plain text for what its framework rejects.

Texts of the request are not repeated: they may be long, or private.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from itertools import groupby
from typing import Any, Final, NamedTuple

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
from jan_serve.http.errors import Path, Problem, is_inside, path_in
from jan_serve.http.replies import json_reply
from jan_serve.http.strict_json import line_and_column, span_of

_OVERLOADED: Final = "Model is overloaded"
_IN_BAND_STATUS: Final = 422
_BYTE: Final = re.compile(r" \(byte \d+\)\Z")
_EXPECTED: Final = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "a boolean",
    "list_type": "a sequence",
    "dict_type": "a map",
    "model_type": "a map",
    "model_attributes_type": "a map",
}
_MAX_NUMBER_LENGTH: Final = 40
_MAX_ERRORS: Final = 8


class ErrorBody(TypedDict):
    """A failure and its kind, by which clients choose an exception."""

    error: str
    error_type: str


class ValidationFailed(InvalidRequest):
    """A parameter that TGI refuses; the message is TGI's text."""

    code = "validation"


class ToolFailed(InvalidRequest):
    """Tools that cannot be used."""

    code = "tool_error"


class BatchTooLarge(InvalidRequest):
    """Too many prompts in one completion."""

    code = "batch_size_exceeded"


class SuffixNotSupported(InvalidRequest):
    """A completion with a suffix."""

    code = "suffix_not_supported"


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
            return {"error": f"Input validation error: {error.which}{text}", "error_type": "validation"}
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


def _json_reason(message: str) -> str:
    reason = message.removeprefix("The request body is not valid JSON: ").removesuffix(".")
    return _BYTE.sub("", reason)


def render_error(problem: Problem) -> Response:
    if problem.status == HTTPStatus.UNAUTHORIZED:
        return Response(status_code=HTTPStatus.UNAUTHORIZED)
    if isinstance(problem.error, InvalidJson):
        place = problem.error.place
        text = f"Failed to parse the request body as JSON: {_json_reason(problem.message)}"
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


class _Entry(NamedTuple):
    """A pydantic error at a path of the body; its `loc` mixes the path with names of union members."""

    path: Path
    error: Mapping[str, Any]

    @property
    def is_missing(self) -> bool:
        return self.error["type"] in ("missing", "union_tag_not_found")


def deserialize_error(errors: Sequence[Mapping[str, Any]], value: Any, body: bytes) -> str:
    """The text for a body that does not fit, as serde writes it: path, reason and position of the first error.

    errors: pydantic's, one or more. value: `body` decoded.
    """
    entries = [_Entry(path_in(error["loc"], value), error) for error in errors[:_MAX_ERRORS]]
    # If a value may have several forms, errors deeper inside it are of the form that fits better.
    deepest = [
        entry
        for entry in entries
        if entry.is_missing or not any(is_inside(other.path, entry.path) for other in entries)
    ]
    placed = [(_offset(entry, value, body), entry) for entry in deepest]
    known = [(offset, entry) for offset, entry in placed if offset is not None]
    if not known:
        return _words([deepest[0]], value)
    offset, first = min(known, key=lambda each: each[0])
    alike = [entry for _, entry in known if entry.path == first.path and entry.is_missing == first.is_missing]
    line, column = line_and_column(body, offset)
    return f"{_words(alike, value)} at line {line} column {column}"


def _value(path: Path, value: Any) -> Any:
    for step in path:
        value = value[step]
    return value


def _offset(entry: _Entry, value: Any, body: bytes) -> int | None:
    """The offset that serde has read: after a value, but before one that it does not open."""
    span = span_of(body, entry.path)
    if span is None:
        return None
    opens = isinstance(_value(entry.path, value), list | dict)
    return span.start if opens and entry.error["type"] in _EXPECTED else span.end


def _words(entries: Sequence[_Entry], value: Any) -> str:
    path = _dotted(entries[0].path)
    return f"{path}: {_reason(entries, value)}" if path else _reason(entries, value)


def _dotted(path: Path) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def _reason(entries: Sequence[_Entry], value: Any) -> str:
    first = entries[0]
    match first.error["type"]:
        case "missing":
            return f"missing field `{first.error['loc'][-1]}`"
        case "union_tag_not_found":
            return "missing field `type`"
        case "union_tag_invalid" | "literal_error":
            return f"unknown variant, expected one of {_names(first.error)}"
        case kind if kind in _EXPECTED:
            forms = [_EXPECTED[each.error["type"]] for each in entries if each.error["type"] in _EXPECTED]
            found = _found(_value(first.path, value))
            return f"invalid type: {found}, expected {' or '.join(form for form, _ in groupby(forms))}"
        case _:
            return str(first.error["msg"])


def _names(error: Mapping[str, Any]) -> str:
    expected = error["ctx"].get("expected_tags") or error["ctx"]["expected"]
    return str(expected).replace("'", "`").replace(" or ", ", ")


def _found(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return f"boolean `{str(value).lower()}`"
        case int():
            return f"integer `{_short(value)}`"
        case float():
            return f"floating point `{_short(value)}`"
        case str():
            return "string"
        case list():
            return "sequence"
        case _:
            return "map"


def _short(number: float) -> str:
    # Printing an integer of thousands of digits is slow.
    text = f"{number}" if abs(number) < 10**_MAX_NUMBER_LENGTH else "…"
    return text[:_MAX_NUMBER_LENGTH]
