"""HTTP status codes of exceptions, and what a client reads about fields that break a schema: no names of our types."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, cast

import msgspec
from starlette.responses import Response
from starlette.types import Scope

from jan_serve.errors import (
    DeadlineExceeded,
    Draining,
    EngineCrashed,
    EngineFailure,
    EngineStalled,
    HubAccessDenied,
    HubError,
    HubNotFound,
    InsufficientStorage,
    InvalidModel,
    InvalidRequest,
    JanServeError,
    JournalUnusable,
    ModelInUse,
    ModelNotFound,
    Overloaded,
    SettingsError,
    Unavailable,
    shortage,
)
from jan_serve.http.paths import ByPrefix

_MAX_KEY_CHARS: Final = 100
_MAX_ERRORS: Final = 16
_NEEDED: Final = ("missing", "union_tag_not_found")
_NAME: Final = re.compile(r"'(\w+)'")
_ELSEWHERE: Final = (("query",), ("path",), ("header",))
"""Places of fields outside the body, which have no unions."""

_OBJECTS: Final = ("model_type", "model_attributes_type", "dict_type")

Path = tuple[str | int, ...]


class FieldError(msgspec.Struct, frozen=True):
    """A field that breaks the route's schema. loc: path of the value, beginning with `body`."""

    loc: Path
    message: str
    kind: str

    @property
    def place(self) -> str:
        """`messages[0].role` for ("body", "messages", 0, "role")."""
        path = ""
        for step in self.loc[1:] if self.loc[:1] == ("body",) else self.loc:
            path += f"[{step}]" if isinstance(step, int) else f".{step}"
        return path.lstrip(".") or "body"


def field_errors(errors: Sequence[Mapping[str, Any]], body: object) -> tuple[FieldError, ...]:
    """errors: pydantic's, of this body. Values of the request are not repeated: they may be long or private.

    Where a value may have several forms, errors deeper inside it are of the form that fits best, and stand alone.
    """
    found = [(_place_of(error, body), error) for error in errors[:_MAX_ERRORS]]
    return tuple(
        FieldError(_short(place), _message_of(error), str(error["type"]))
        for place, error in found
        if error["type"] in _NEEDED or not any(is_inside(other, place) for other, _ in found)
    )


def invalid_value(field: str, errors: Sequence[Mapping[str, Any]], value: object) -> InvalidRequest:
    """The first of pydantic's errors of the value of a field."""
    first = field_errors(errors, value)[0]
    path = f".{first.place}" if first.loc else ""
    return InvalidRequest(f"{field}{path}: {first.message}", param=field.partition("[")[0])


def summary_of(fields: Sequence[FieldError]) -> str:
    """The first three places with what is wrong there."""
    messages: dict[str, list[str]] = {}
    for field in fields:
        found = messages.setdefault(field.place, [])
        if field.message not in found:
            found.append(field.message)
    return "; ".join(f"{place}: {', or '.join(found)}" for place, found in list(messages.items())[:3])


def path_in(loc: Sequence[str | int], value: object) -> Path:
    """The steps of pydantic's location that lead to a value; the others name members of unions."""
    path: list[str | int] = []
    for step in loc:
        if _has(value, step):
            path.append(step)
            value = cast(Any, value)[step]
    return tuple(path)


def _has(value: object, step: str | int) -> bool:
    if isinstance(step, str):
        return isinstance(value, dict) and step in value
    return isinstance(value, list) and step < len(cast(list[Any], value))


def is_inside(inner: Path, outer: Path) -> bool:
    return len(inner) > len(outer) and inner[: len(outer)] == outer


def _place_of(error: Mapping[str, Any], body: object) -> Path:
    loc: Path = tuple(error["loc"])
    if body is None or loc[:1] in _ELSEWHERE:
        return loc
    is_missing = error["type"] == "missing" and loc != ("body",)
    steps, missing = (loc[:-1], loc[-1:]) if is_missing else (loc, ())
    value: object = {"body": body} if loc[:1] == ("body",) else body
    found = _path_to(error["input"], steps, value) if "input" in error else None
    return (*(path_in(steps, value) if found is None else found), *missing)


def _path_to(target: object, steps: Path, value: object) -> Path | None:
    """Those of the steps that lead to this very object: names of a union's members may be names of fields too."""
    seen = set[tuple[int, int]]()

    def behind(at: int, value: object) -> Path | None:
        if at == len(steps):
            return () if value is target else None
        if (at, id(value)) in seen:
            return None
        seen.add((at, id(value)))
        if _has(value, steps[at]):
            inner = behind(at + 1, cast(Any, value)[steps[at]])
            if inner is not None:
                return (steps[at], *inner)
        return behind(at + 1, value)

    return behind(0, value)


def _message_of(error: Mapping[str, Any]) -> str:
    """pydantic's message, without names of types and functions, and without the tag, which it would repeat."""
    kind = error["type"]
    if kind == "union_tag_invalid":
        return f"{_discriminator(error)} must be one of: {error['ctx']['expected_tags']}"
    if kind == "union_tag_not_found":
        return f"{_discriminator(error)} is needed"
    return "Input should be an object" if kind in _OBJECTS else str(error["msg"])


def _discriminator(error: Mapping[str, Any]) -> str:
    found = _NAME.search(str(error["ctx"]["discriminator"]))
    return found[0] if found is not None else "'type'"


def _short(place: Path) -> Path:
    """Keys of a request's objects are values, too."""
    return tuple(step[:_MAX_KEY_CHARS] if isinstance(step, str) else step for step in place)


logger = logging.getLogger(__name__)

INTERNAL_MESSAGE: Final = (
    "The server failed to answer this request. The log has the reason under the request id."
)
CLIENT_CLOSED: Final = 499
"""nginx's status for a client that disconnected; only the log and the metrics show it."""

STATUS_OF: Final[tuple[tuple[type[JanServeError], int], ...]] = (
    (InvalidRequest, HTTPStatus.BAD_REQUEST),
    (ModelNotFound, HTTPStatus.NOT_FOUND),
    (ModelInUse, HTTPStatus.CONFLICT),
    (HubNotFound, HTTPStatus.NOT_FOUND),
    (HubAccessDenied, HTTPStatus.FORBIDDEN),
    (HubError, HTTPStatus.BAD_GATEWAY),
    (InsufficientStorage, HTTPStatus.INSUFFICIENT_STORAGE),
    (JournalUnusable, HTTPStatus.SERVICE_UNAVAILABLE),
    (Overloaded, HTTPStatus.TOO_MANY_REQUESTS),
    (Unavailable, HTTPStatus.SERVICE_UNAVAILABLE),
    (EngineCrashed, HTTPStatus.SERVICE_UNAVAILABLE),
    (EngineStalled, HTTPStatus.GATEWAY_TIMEOUT),
    (DeadlineExceeded, HTTPStatus.GATEWAY_TIMEOUT),
    (InvalidModel, HTTPStatus.UNPROCESSABLE_ENTITY),
    (JanServeError, HTTPStatus.INTERNAL_SERVER_ERROR),
)
"""The first match decides, so subclasses precede their base."""

_SPEAKING: Final = (EngineFailure, SettingsError)
"""Errors with status 500 whose message may be shown to the client: without it, a load that the settings refuse could
not be told from a fault of the server."""

_RETRY_AFTER_CRASH_S: Final = 1.0


class Problem(msgspec.Struct, frozen=True):
    """code: stable. error: for dialects that need details. request_id: empty until `Envelopes` renders it."""

    status: int
    code: str
    message: str
    param: str | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    fields: tuple[FieldError, ...] = ()
    error: JanServeError | None = None
    request_id: str = ""


class HttpError(Exception):
    """A request rejected for its HTTP form: by a guard, by routing, while its body is read."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class ClientGone(Exception):
    """The client closed the connection before its answer was complete."""


ErrorRenderer = Callable[[Problem], Response]


FORM_PATH: Final = "jan_serve.form_path"
"""Key of a scope: the path whose form errors have, where a path is shared and the body decides."""


def form_path(scope: Scope) -> str:
    return scope.get(FORM_PATH, scope["path"])


class Envelopes(ByPrefix[ErrorRenderer]):
    def render(self, path: str, problem: Problem, request_id: str = "") -> Response:
        """The response to a problem on this path, with the problem's headers."""
        response = self[path](msgspec.structs.replace(problem, request_id=request_id))
        response.headers.update(problem.headers)
        return response


def status_of(error: JanServeError) -> int:
    kinds = type(error).__mro__
    return int(next(status for kind, status in STATUS_OF if kind in kinds))


def problem_of(error: JanServeError) -> Problem:
    """Without the message of an internal failure."""
    return Problem(
        status=status_of(error),
        code=error.code,
        message=_shown(error),
        param=error.param,
        headers=_retry_header(error),
        error=error,
    )


RETRY_AFTER_S: Final = 5.0
"""A server that stops is often being restarted."""


def draining_problem() -> Problem:
    return closing_problem(
        Draining("The server is shutting down and takes no new requests.", retry_after=RETRY_AFTER_S)
    )


def ending_problem() -> Problem:
    """For requests that run when the time of the drain is over."""
    return closing_problem(Draining("The server is shutting down.", retry_after=RETRY_AFTER_S))


def closing_problem(error: Unavailable) -> Problem:
    """A problem that ends the connection, whose request may be unread."""
    problem = problem_of(error)
    return msgspec.structs.replace(problem, headers={**problem.headers, "connection": "close"})


def logged_problem(error: JanServeError, request_id: str) -> Problem:
    """See `problem_of`. What it leaves out of a message goes to the log, under the request id."""
    if _is_hidden(error) or isinstance(error, SettingsError):
        logger.error("request %s failed: %s", request_id, error.message)
    return problem_of(error)


def _shown(error: JanServeError) -> str:
    if _is_hidden(error):
        return INTERNAL_MESSAGE
    if not isinstance(error, SettingsError):
        return error.message
    from jan_serve.errors import public_text  # a start without faults does not need it

    # The owner of the machine needs the whole path of a file in the settings, and finds it in the log.
    return public_text(error.message)


def _is_hidden(error: JanServeError) -> bool:
    return status_of(error) == HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, _SPEAKING)


def unexpected_problem(error: Exception) -> Problem:
    """The problem that stands for an unexpected exception. Contains nothing of it, unless the server lacks memory,
    threads or descriptors for a moment."""
    if (lacking := shortage(error)) is not None:
        return problem_of(lacking)
    return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, JanServeError.code, INTERNAL_MESSAGE)


def http_problem(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> HttpError:
    return HttpError(Problem(int(status), code, message, headers=headers or {}))


def validation_problem(errors: Sequence[Mapping[str, Any]], body: object = None) -> Problem:
    """errors: pydantic's, of this body."""
    fields = field_errors(errors, body)
    return Problem(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "validation_error",
        f"The request does not fit the schema of this route: {summary_of(fields)}",
        param=fields[0].place if fields else None,
        fields=fields,
    )


def _retry_header(error: JanServeError) -> dict[str, str]:
    seconds = error.retry_after if isinstance(error, Unavailable) else None
    if isinstance(error, EngineCrashed):
        seconds = _RETRY_AFTER_CRASH_S
    return {} if seconds is None else {"retry-after": str(max(1, math.ceil(seconds)))}
