"""Ollama's error bodies: `{"error": TEXT}`, also as the last line of a stream.

Clients search the texts: `model 'x' not found` starts a pull, `does not support tools` and `does not support thinking`
make them ask again without.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.errors import ContextLengthExceeded, InvalidRequest, ModelNotFound
from jan_serve.http.errors import Problem
from jan_serve.http.replies import json_reply

_TOO_LONG: Final = "the prompt is longer than the context length currently available to the model"
_INPUT_TOO_LONG: Final = "the input length exceeds the context length"


class OllamaError(TypedDict):
    error: str


class Unsupported(InvalidRequest):
    """The model cannot do what the request needs, in words that clients recognise. what: `tools`, `thinking`, …"""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f'"{name}" does not support {what}', param="model")


def error_body(problem: Problem) -> OllamaError:
    return {"error": _text(problem)}


def render_error(problem: Problem) -> Response:
    """A body that breaks the schema is a 400, a full queue a 503."""
    status = problem.status
    if problem.fields:
        status = HTTPStatus.BAD_REQUEST
    elif status == HTTPStatus.TOO_MANY_REQUESTS:
        status = HTTPStatus.SERVICE_UNAVAILABLE
    return json_reply(error_body(problem), status)


def _text(problem: Problem) -> str:
    match problem.error:
        case ModelNotFound() as error:
            return f"model '{error.name}' not found" + (f": {error.remedy}" if error.remedy else "")
        case ContextLengthExceeded() as error:
            words = _INPUT_TOO_LONG if error.param == "input" else _TOO_LONG
            numbers = f"{error.length} tokens, and the context holds {error.n_ctx}"
            return f"{words}: {error.which}{numbers}" + (f". {error.remedy}" if error.remedy else "")
        case _:
            return problem.message
