"""What LMDeploy's servers and its proxy have alike: flat error bodies, with the status as code, and cards of models."""

from __future__ import annotations

import uuid
from http import HTTPStatus
from typing import Any, Final, Literal

from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.errors import ContextLengthExceeded, ModelNotFound
from jan_serve.http.errors import Problem
from jan_serve.http.replies import json_reply

_NO_KEY: Final = {
    "message": "Please request with valid api key!",
    "type": "invalid_request_error",
    "param": None,
    "code": "invalid_api_key",
}


class ErrorBody(TypedDict):
    """Every refusal and failure, flat. code: the HTTP status."""

    message: str
    type: str
    code: int
    param: None
    object: Literal["error"]


def error_body(problem: Problem, status: int | None = None) -> ErrorBody:
    status = problem.status if status is None else status
    return {
        "message": _message(problem),
        "type": "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error",
        "code": int(status),
        "param": None,
        "object": "error",
    }


def in_band_error(problem: Problem) -> dict[str, ErrorBody]:
    """An error inside a stream."""
    return {"error": error_body(problem)}


def render_error(problem: Problem) -> Response:
    if problem.status == HTTPStatus.UNAUTHORIZED:
        return json_reply({"detail": {"error": _NO_KEY}}, problem.status)
    body: dict[str, Any] = {**error_body(problem)}
    if problem.fields:
        body["detail"] = [
            {"loc": list(field.loc), "msg": field.message, "type": field.kind} for field in problem.fields
        ]
    return json_reply(body, problem.status)


def _message(problem: Problem) -> str:
    match problem.error:
        case ModelNotFound() as error:
            return f"The model {error.name!r} does not exist. {error.remedy}".rstrip()
        case ContextLengthExceeded() as error:
            return (
                f"{error.which}Input length ({error.length}) must be smaller than the model context length"
                f" ({error.n_ctx}). {error.remedy}".rstrip()
            )
        case _:
            return problem.message


_ID_DIGITS: Final = 22


def permitted_card(name: str, created: int) -> dict[str, Any]:
    permission = {
        "id": f"modelperm-{uuid.uuid5(uuid.NAMESPACE_OID, name).hex[:_ID_DIGITS]}",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": True,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "lmdeploy",
        "root": name,
        "parent": None,
        "permission": [permission],
    }
