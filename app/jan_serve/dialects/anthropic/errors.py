"""Anthropic's errors: `{"type": "error", "error": {"type", "message"}, "request_id"}`.

Clients retry 5xx for minutes: what waiting does not change is a 4xx.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, Literal

from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.dialects.anthropic.claude_clients import names_for
from jan_serve.errors import ContextLengthExceeded, InvalidModel, ModelNotFound, Unavailable
from jan_serve.http.errors import Problem
from jan_serve.http.replies import json_reply

REQUEST_ID_HEADER: Final = "request-id"
OVERLOADED: Final = 529
_TYPES: Final = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "request_too_large",
    HTTPStatus.GATEWAY_TIMEOUT: "timeout_error",
    OVERLOADED: "overloaded_error",
}
_FIELDS: Final = {"stop": "stop_sequences"}
"""Names of fields in errors of shared code."""


class AnthropicErrorDetail(TypedDict):
    type: str
    message: str


class AnthropicError(TypedDict):
    type: Literal["error"]
    error: AnthropicErrorDetail
    request_id: str


def render_error(problem: Problem) -> Response:
    body = error_body(problem)
    return json_reply(body, _status(problem), {REQUEST_ID_HEADER: problem.request_id})


def error_body(problem: Problem) -> AnthropicError:
    """The body, also as the last event of a stream that failed."""
    status = _status(problem)
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    error: AnthropicErrorDetail = {"type": kind, "message": _message(problem)}
    return {"type": "error", "error": error, "request_id": problem.request_id}


def _status(problem: Problem) -> int:
    match problem.error:
        case InvalidModel() | Unavailable(retry_after=None):
            return HTTPStatus.BAD_REQUEST
        case Unavailable():
            return OVERLOADED
        case _:
            pass
    if problem.status == HTTPStatus.UNPROCESSABLE_ENTITY:
        return HTTPStatus.BAD_REQUEST
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        return HTTPStatus.INTERNAL_SERVER_ERROR if problem.error else OVERLOADED
    return problem.status


def _message(problem: Problem) -> str:
    match problem.error:
        case ContextLengthExceeded() as error:
            # Claude Code looks for these words, and compacts the conversation.
            numbers = f"{error.n_prompt} tokens > {error.n_ctx} maximum"
            return f"prompt is too long: {numbers}" + (f". {error.advice}" if error.advice else "")
        case ModelNotFound() as error:
            return f"model: {error.name}. {error.message}{_names_hint(error.name)}"
        case _:
            pass
    param = _FIELDS.get(problem.param or "", problem.param)
    if param is None or param in problem.message:
        return problem.message
    return f"{param}: {problem.message}"


def _names_hint(name: str) -> str:
    is_foreign = len(names_for(name)) == 1
    return "" if is_foreign else " `jan-serve connect claude --write` lets a model answer to Claude's names."
