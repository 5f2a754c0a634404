"""Cohere's errors: `{"message": TEXT}`."""

from __future__ import annotations

from starlette.responses import Response

from jan_serve.http.errors import Problem
from jan_serve.http.replies import json_reply


def render_error(problem: Problem) -> Response:
    return json_reply({"message": problem.message}, problem.status)
