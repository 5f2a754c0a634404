"""The server's default error body, without the models that document it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from starlette.responses import Response

from jan_serve.errors import ContextLengthExceeded
from jan_serve.http.errors import Problem
from jan_serve.http.replies import json_reply

_TYPES: Final = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "service_unavailable",
    HTTPStatus.GATEWAY_TIMEOUT: "timeout_error",
}


def error_body(problem: Problem) -> dict[str, Any]:
    """The body, also as the last event of a stream that failed."""
    body: dict[str, Any] = {
        "error": {
            "message": problem.message,
            "type": _type(problem.status),
            "param": problem.param,
            "code": problem.code,
        }
    }
    if isinstance(problem.error, ContextLengthExceeded):
        param = "input" if problem.error.param == "input" else "messages"
        body["error"] |= {"message": _context_message(problem.error), "param": param}
    if problem.fields:
        # HTTPValidationError as the API document has it; OpenAI's clients read `error` beside it.
        body["detail"] = [
            {"loc": list(field.loc), "msg": field.message, "type": field.kind} for field in problem.fields
        ]
    elif problem.status == HTTPStatus.UNAUTHORIZED:
        body["detail"] = problem.message
    return body


def render_error(problem: Problem) -> Response:
    return json_reply(error_body(problem), problem.status)


def _type(status: int) -> str:
    if status in _TYPES:
        return _TYPES[HTTPStatus(status)]
    return "invalid_request_error" if status < 500 else "internal_server_error"


def _context_message(error: ContextLengthExceeded) -> str:
    """OpenAI's wording, because clients parse its numbers."""
    completion, remedy = error.max_tokens or 0, f" {error.advice}" if error.advice else ""
    total = error.n_prompt + completion
    if error.param == "messages":
        return (
            f"This model's maximum context length is {error.n_ctx} tokens. However, you requested {total} tokens"
            f" ({error.n_prompt} in the messages, {completion} in the completion). Please reduce the length of the"
            f" messages or completion.{remedy}"
        )
    return (
        f"{error.which}This model's maximum context length is {error.n_ctx} tokens, however you requested"
        f" {total} tokens ({error.n_prompt} in your prompt; {completion} for the completion). Please reduce your"
        f" prompt; or completion length.{remedy}"
    )
