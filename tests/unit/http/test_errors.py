from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError
from starlette.responses import PlainTextResponse, Response

from jan_serve.errors import (
    DeadlineExceeded,
    EngineCrashed,
    InvalidModel,
    InvalidRequest,
    JanServeError,
    ModelFailed,
    Overloaded,
    ProtocolError,
    SettingsError,
    error_from_payload,
)
from jan_serve.http.errors import (
    INTERNAL_MESSAGE,
    STATUS_OF,
    Envelopes,
    ErrorRenderer,
    Problem,
    field_errors,
    http_problem,
    logged_problem,
    problem_of,
    status_of,
    unexpected_problem,
    validation_problem,
)


def all_errors() -> list[type[JanServeError]]:
    found: list[type[JanServeError]] = []
    waiting: list[type[JanServeError]] = [JanServeError]
    while waiting:
        kind = waiting.pop()
        if kind.__module__ == JanServeError.__module__:
            found.append(kind)
            waiting.extend(kind.__subclasses__())
    return sorted(found, key=lambda kind: kind.__name__)


PAYLOAD: dict[str, Any] = {
    "message": "m", "param": None, "n_prompt": 9, "n_ctx": 8, "reason": "r", "line": 1, "pointer": "/a",
    "keyword": "k", "position": 1, "name": "x", "near": [], "retry_after": 2.0,
    "file": "f", "want": "w", "got": "g", "adapter": "a", "model": "m", "known": [],
}  # fmt: skip


@pytest.mark.parametrize("kind", all_errors())
def test_every_error_has_a_status_and_a_problem(kind: type[JanServeError]) -> None:
    error = error_from_payload(kind.code, PAYLOAD)
    assert type(error) is kind
    problem = problem_of(error)
    assert 400 <= problem.status <= 507
    assert problem.code == kind.code
    assert problem.message
    assert (problem.status == 400) == issubclass(kind, InvalidRequest)


def test_every_line_of_the_table_is_reached() -> None:
    """A class behind its own base would never decide."""
    for position, (kind, _) in enumerate(STATUS_OF):
        assert not any(issubclass(kind, earlier) for earlier, _ in STATUS_OF[:position])


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (Overloaded("full", retry_after=3.2), 429, "4"),
        (ModelFailed("gone", retry_after=None), 503, None),
        (ModelFailed("soon", retry_after=0.1), 503, "1"),
        (EngineCrashed("gone"), 503, "1"),
        (DeadlineExceeded("late"), 504, None),
        (InvalidModel("bad"), 422, None),
    ],
)
def test_when_to_come_back(error: JanServeError, status: int, retry_after: str | None) -> None:
    problem = problem_of(error)
    assert (problem.status, problem.headers.get("retry-after")) == (status, retry_after)


def test_our_own_failures_say_nothing_of_the_inside() -> None:
    for problem in (
        problem_of(ProtocolError("frame at 0x7f00 in /home/x")),
        unexpected_problem(KeyError("/home/x")),
    ):
        assert (problem.status, problem.message) == (500, INTERNAL_MESSAGE)


def test_a_wrong_setting_tells_its_reason_but_no_path(caplog: pytest.LogCaptureFixture) -> None:
    reason = "require_accelerator: llama.cpp finds no accelerator that may be used (device: any; found: none)"
    problem = problem_of(SettingsError(reason))
    assert (problem.status, problem.code, problem.message) == (500, "settings_error", reason)
    error = SettingsError("template: /home/me/chat.jinja cannot be read: Permission denied")
    assert logged_problem(error, "req_7").message == "template: chat.jinja cannot be read: Permission denied"
    assert caplog.messages == [f"request req_7 failed: {error.message}"]


def test_what_an_answer_hides_is_in_the_log_under_its_request(caplog: pytest.LogCaptureFixture) -> None:
    error = ProtocolError("frame at 0x7f00 in /home/x")
    assert logged_problem(error, "req_7") == problem_of(error)
    assert caplog.messages == ["request req_7 failed: frame at 0x7f00 in /home/x"]
    caplog.clear()
    logged_problem(InvalidModel("bad"), "req_8")
    assert caplog.messages == []


def test_an_error_of_a_subclass_that_the_table_does_not_name() -> None:
    class New(Overloaded):
        code = "new"

    assert status_of(New("x")) == 429


def test_validation_names_the_fields_but_not_their_values() -> None:
    errors = [
        {"loc": ("body", "messages", 0, "role"), "msg": "bad", "type": "t", "input": "secret"},
        *({"loc": ("body", f"f{i}"), "msg": "m", "type": "t", "input": "secret"} for i in range(100)),
    ]
    problem = validation_problem(errors)
    assert problem.status == 422
    assert problem.param == "messages[0].role"
    assert len(problem.fields) == 16
    assert "secret" not in str(problem)


def test_validation_repeats_no_tag_and_no_long_key() -> None:
    class Cat(BaseModel):
        kind: Literal["cat"]

    class Dog(BaseModel):
        kind: Literal["dog"]

    class Body(BaseModel):
        pet: Annotated[Cat | Dog, Field(discriminator="kind")]
        weights: dict[str, float]

    long = "secret" * 1000
    with pytest.raises(ValidationError) as caught:
        Body.model_validate({"pet": {"kind": long}, "weights": {long: "x"}})
    problem = validation_problem(caught.value.errors())
    assert problem.fields[0].message == "'kind' must be one of: 'cat', 'dog'"
    assert "pet: 'kind' must be one of: 'cat', 'dog'" in problem.message
    assert problem.fields[1].loc == ("weights", long[:100])
    assert len(str(problem)) < 1000


def test_envelopes_are_chosen_by_whole_path_segments() -> None:
    def renderer(name: str) -> ErrorRenderer:
        def render(problem: Problem) -> Response:
            return PlainTextResponse(name, problem.status)

        return render

    envelopes = Envelopes({"/tgi": renderer("tgi"), "/tgi/v1": renderer("v1")}, renderer("root"))
    problem = http_problem(413, "c", "m", {"connection": "close"}).problem
    for path, name in {
        "/": "root", "/v1/chat": "root", "/tgi": "tgi", "/tgi/x": "tgi", "/tgix": "root", "/tgi/v1/chat": "v1",
    }.items():  # fmt: skip
        response = envelopes.render(path, problem)
        assert response.body == name.encode()
        assert response.status_code == 413
        assert response.headers["connection"] == "close"


def test_the_place_of_an_error_in_deep_members_of_one_name_is_found_soon() -> None:
    """Each step may be a field or the name of a union's member: trying all ways would take 2 ** 60 steps."""
    body: dict[str, Any] = {}
    inner = body
    for _ in range(60):
        inner["a"] = inner = {}
    error = {"loc": ("a",) * 60, "type": "x", "msg": "m", "input": object()}
    assert field_errors([error], body)[0].loc == ("a",) * 60
