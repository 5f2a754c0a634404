"""Refusals of the proxy, and the form that clients of a path read: each protocol's own, LMDeploy's elsewhere."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from jan_serve.dialects.outline import StreamErrors
from jan_serve.dialects.outlines import OUTLINES
from jan_serve.dialects.shared import default_error_body, lmdeploy_forms
from jan_serve.http.errors import ByPrefix, Envelopes, FieldError, HttpError, Problem, http_problem
from jan_serve.http.replies import frame
from jan_serve.proxy.upstream.connection import Failure, NodeFailure

MAX_HOPS = 4


def wrong_field(param: str, message: str) -> HttpError:
    """422 for one field of a body; the message ends a sentence about it."""
    text = f"{param}: {message}"
    field = FieldError(("body", *param.split(".")), text, "value_error")
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    return HttpError(Problem(status, "validation_error", text, param=param, fields=(field,)))


def node_failed(name: str, failure: NodeFailure) -> HttpError:
    """502, or 504 for a node that is too slow."""
    status, code = HTTPStatus.BAD_GATEWAY, "node_failed"
    if failure.kind is Failure.TIMEOUT:
        status, code = HTTPStatus.GATEWAY_TIMEOUT, "node_timeout"
    return http_problem(status, code, f"The node {name} {failure.message}.")


def too_many_hops() -> HttpError:
    return http_problem(
        HTTPStatus.LOOP_DETECTED,
        "proxy_loop",
        f"The request went through more than {MAX_HOPS} proxies: one of them has a proxy among its nodes.",
    )


_OWN_PATHS: Final = ("/health", "/ready")


def envelopes() -> Envelopes:
    renderers = {prefix: render for outline in OUTLINES for prefix, render in outline.errors.items()}
    own = dict.fromkeys(_OWN_PATHS, default_error_body.render_error)
    return Envelopes(renderers | own, lmdeploy_forms.render_error)


_STREAMS: Final = ByPrefix(
    {prefix: form for outline in OUTLINES for prefix, form in outline.stream_errors.items()},
    StreamErrors(lambda problem: frame(lmdeploy_forms.in_band_error(problem))),
)


def end_of_broken(path: str, media_type: bytes, tail: bytes, problem: Problem) -> bytes | None:
    """What ends a stream that broke after `tail`. None for anything else: a part of it must not pass for the whole."""
    form = _STREAMS[path]
    if media_type.partition(b";")[0].strip() != form.media_type or (tail and not tail.endswith(form.marks)):
        return None
    return form.render(problem)
