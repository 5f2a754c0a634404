"""Maps exceptions to HTTP status codes, in one total table.

A Problem is independent of dialects; `Envelopes` chooses its renderer by path, so that guards and unknown routes answer
in the form that clients of that path read.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.responses import Response

from jan_serve.errors import (
    DeadlineExceeded,
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
    ModelInUse,
    ModelNotFound,
    Overloaded,
    ProtocolError,
    SettingsError,
    StoreError,
    Unavailable,
)
from jan_serve.http.field_errors import FieldError, field_errors, summary_of
from jan_serve.http.paths import ByPrefix

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
    (Overloaded, HTTPStatus.TOO_MANY_REQUESTS),
    (Unavailable, HTTPStatus.SERVICE_UNAVAILABLE),
    (EngineCrashed, HTTPStatus.SERVICE_UNAVAILABLE),
    (EngineStalled, HTTPStatus.GATEWAY_TIMEOUT),
    (DeadlineExceeded, HTTPStatus.GATEWAY_TIMEOUT),
    (EngineFailure, HTTPStatus.INTERNAL_SERVER_ERROR),
    (InvalidModel, HTTPStatus.UNPROCESSABLE_ENTITY),
    (StoreError, HTTPStatus.INTERNAL_SERVER_ERROR),
    (SettingsError, HTTPStatus.INTERNAL_SERVER_ERROR),
    (ProtocolError, HTTPStatus.INTERNAL_SERVER_ERROR),
    (JanServeError, HTTPStatus.INTERNAL_SERVER_ERROR),
)
"""The first match decides, so subclasses precede their base."""

_SPEAKING: Final = (EngineFailure, SettingsError)
"""Errors with status 500 whose message may be shown to the client: without it, a load that the settings refuse could
not be told from a fault of the server."""

_RETRY_AFTER_CRASH_S: Final = 1.0


class Problem(msgspec.Struct, frozen=True):
    """Why a request was rejected or failed. code: stable. error: the exception, for dialects that need details.

    request_id: empty until `Envelopes` renders it.
    """

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


class Envelopes(ByPrefix[ErrorRenderer]):
    """Error renderers by path."""

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


def logged_problem(error: JanServeError, request_id: str) -> Problem:
    """As `problem_of`. What it leaves out of a message goes to the log, under the request id."""
    if _is_hidden(error) or isinstance(error, SettingsError):
        logger.error("request %s failed: %s", request_id, error.message)
    return problem_of(error)


def _shown(error: JanServeError) -> str:
    if _is_hidden(error):
        return INTERNAL_MESSAGE
    if not isinstance(error, SettingsError):
        return error.message
    from jan_serve.core.public_text import public_text  # a start without faults does not need it

    # The owner of the machine needs the whole path of a file in the settings, and finds it in the log.
    return public_text(error.message)


def _is_hidden(error: JanServeError) -> bool:
    return status_of(error) == HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, _SPEAKING)


def internal_problem() -> Problem:
    """For an unexpected exception. Contains nothing of it."""
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
    seconds = _RETRY_AFTER_CRASH_S if isinstance(error, EngineCrashed) else None
    if isinstance(error, Unavailable):
        seconds = error.retry_after
    return {} if seconds is None else {"retry-after": str(max(1, math.ceil(seconds)))}
