"""The whole tree of errors in Anthropic's form."""

from __future__ import annotations

import json

import pytest

from jan_serve.dialects.anthropic.errors import error_body, render_error
from jan_serve.errors import (
    Asleep,
    ContextLengthExceeded,
    DeadlineExceeded,
    Draining,
    EngineCrashed,
    InsufficientMemory,
    InvalidModel,
    InvalidRequest,
    JanServeError,
    ModelFailed,
    ModelNotFound,
    Overloaded,
    TemplateError,
    error_from_payload,
)
from jan_serve.http.errors import Problem, http_problem, problem_of, unexpected_problem, validation_problem
from tests.unit.http.test_errors import PAYLOAD, all_errors

TYPES = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    405: "invalid_request_error", 409: "invalid_request_error", 413: "request_too_large",
    415: "invalid_request_error", 500: "api_error", 502: "api_error", 504: "timeout_error",
    507: "api_error", 529: "overloaded_error",
}  # fmt: skip


@pytest.mark.parametrize("kind", all_errors())
def test_every_error_has_a_type_of_anthropics(kind: type[JanServeError]) -> None:
    response = render_error(problem_of(error_from_payload(kind.code, PAYLOAD)))
    body = json.loads(bytes(response.body))
    assert body["type"] == "error"
    assert body["error"]["type"] == TYPES[response.status_code]
    assert body["error"]["message"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InsufficientMemory("full", retry_after=None), 400), (InsufficientMemory("full"), 529),
        (ModelFailed("bad", retry_after=None), 400), (ModelFailed("bad", retry_after=4), 529),
        (InvalidModel("bad"), 400), (Overloaded("full"), 529), (Draining("ends"), 529), (Asleep("zzz"), 529),
        (EngineCrashed("died"), 500), (DeadlineExceeded("late"), 504), (TemplateError("no"), 400),
    ],
)  # fmt: skip
def test_only_what_may_pass_is_a_5xx(error: JanServeError, status: int) -> None:
    assert render_error(problem_of(error)).status_code == status


@pytest.mark.parametrize(
    ("problem", "status"),
    [
        (http_problem(401, "invalid_api_key", "Invalid API key").problem, 401),
        (http_problem(503, "draining", "The server is shutting down.").problem, 529),
        (http_problem(413, "too_large", "Too large.").problem, 413),
        (validation_problem([{"loc": ("body", "max_tokens"), "msg": "Field required", "type": "missing"}]), 400),
        (unexpected_problem(KeyError("a")), 500),
    ],
)  # fmt: skip
def test_rejections_by_guards(problem: Problem, status: int) -> None:
    response = render_error(problem)
    assert response.status_code == status
    assert json.loads(bytes(response.body))["error"]["type"] == TYPES[status]


def test_claude_code_recognises_a_prompt_that_is_too_long() -> None:
    error = ContextLengthExceeded(600, 512)
    message = error_body(problem_of(error))["error"]["message"]
    assert message == f"prompt is too long: 600 tokens > 512 maximum. {error.remedy}"
    assert "grow_context" in message
    unread = error_body(problem_of(ContextLengthExceeded(600, 512, at_least=True)))["error"]["message"]
    assert unread.startswith(
        "prompt is too long: 600 tokens > 512 maximum. The prompt was not read to its end: it has"
    )


@pytest.mark.parametrize(("name", "hinted"), [("claude-x", True), ("opus", True), ("qwen", False)])
def test_an_unknown_model_is_named_and_claudes_names_get_a_hint(name: str, *, hinted: bool) -> None:
    message = error_body(problem_of(ModelNotFound(name)))["error"]["message"]
    assert message.startswith(f"model: {name}. ")
    assert ("jan-serve connect claude --write" in message) == hinted


def test_fields_have_their_names_in_this_api() -> None:
    message = error_body(problem_of(InvalidRequest("too many", param="stop")))["error"]["message"]
    assert message == "stop_sequences: too many"


def test_the_request_id_is_in_the_header_and_the_body() -> None:
    response = render_error(Problem(400, "c", "m", request_id="req_1"))
    assert response.headers["request-id"] == "req_1"
    assert json.loads(bytes(response.body))["request_id"] == "req_1"
