from __future__ import annotations

import pytest

from jan_serve.dialects.shared.default_error_body import error_body
from jan_serve.errors import ContextLengthExceeded
from jan_serve.http.errors import FieldError, Problem


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "invalid_request_error"),
        (422, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "internal_server_error"),
        (501, "internal_server_error"),
        (503, "service_unavailable"),
        (504, "timeout_error"),
    ],
)
def test_types_follow_the_status(status: int, kind: str) -> None:
    body = error_body(Problem(status, "c", "m"))
    assert body["error"] == {"message": "m", "type": kind, "param": None, "code": "c"}
    assert ("detail" in body) is (status == 401)


def test_wrong_fields_are_in_fastapis_form_beside_the_error() -> None:
    problem = Problem(422, "c", "m", fields=(FieldError(("body", "n", 0), "must be 1", "out_of_range"),))
    assert error_body(problem)["detail"] == [
        {"loc": ["body", "n", 0], "msg": "must be 1", "type": "out_of_range"}
    ]


@pytest.mark.parametrize(
    ("error", "param", "words"),
    [
        (
            ContextLengthExceeded(90, 100, max_tokens=20),
            "messages",
            "maximum context length is 100 tokens. However, you requested 110 tokens (90 in the messages, 20 in",
        ),
        (
            ContextLengthExceeded(120, 100, param="prompt"),
            "messages",
            "maximum context length is 100 tokens, however you requested 120 tokens (120 in your prompt; 0 for",
        ),
        (
            ContextLengthExceeded(120, 100, param="input", item=3),
            "input",
            "input: item 3: This model's maximum context length is 100 tokens, however",
        ),
        (
            ContextLengthExceeded(120, 100, at_least=True),
            "messages",
            "(120 in the messages, 0 in the completion). Please reduce the length of the messages or completion. The"
            " prompt was not read to its end: it has more tokens.",
        ),
    ],
)
def test_a_prompt_that_is_too_long_has_the_numbers_that_clients_parse(
    error: ContextLengthExceeded, param: str, words: str
) -> None:
    body = error_body(Problem(400, error.code, error.message, error.param, error=error))["error"]
    assert body["param"] == param
    assert words in body["message"]
