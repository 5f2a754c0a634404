"""Refusals of the proxy, as HTTP problems."""

from __future__ import annotations

from http import HTTPStatus

from jan_serve.http.errors import FieldError, HttpError, Problem, http_problem
from jan_serve.proxy.upstream.connection import Failure, NodeFailure

MAX_HOPS = 4


def wrong_field(param: str, message: str) -> HttpError:
    """422 for one field of a body; the message ends a sentence about it."""
    loc = ("body", *param.split("."))
    text = f"{param}: {message}"
    problem = Problem(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "validation_error",
        text,
        param=param,
        fields=(FieldError(loc, text, "value_error"),),
    )
    return HttpError(problem)


def node_failed(name: str, failure: NodeFailure) -> HttpError:
    """502, or 504 for a node that is too slow."""
    slow = failure.kind is Failure.TIMEOUT
    status = HTTPStatus.GATEWAY_TIMEOUT if slow else HTTPStatus.BAD_GATEWAY
    return http_problem(
        status, "node_timeout" if slow else "node_failed", f"The node {name} {failure.message}."
    )


def too_many_hops() -> HttpError:
    return http_problem(
        HTTPStatus.LOOP_DETECTED,
        "proxy_loop",
        f"The request went through more than {MAX_HOPS} proxies: one of them has a proxy among its nodes.",
    )
