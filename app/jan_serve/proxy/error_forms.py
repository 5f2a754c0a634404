"""Errors of the proxy in the form that clients of a path read: each protocol's own, LMDeploy's elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from starlette.types import Scope

from jan_serve.dialects.anthropic import errors as anthropic
from jan_serve.dialects.anthropic import paths as anthropic_paths
from jan_serve.dialects.ollama import errors as ollama
from jan_serve.dialects.ollama import paths as ollama_paths
from jan_serve.dialects.rerank import errors as cohere
from jan_serve.dialects.rerank import paths as rerank_paths
from jan_serve.dialects.shared import default_error_body, flat_errors
from jan_serve.dialects.tgi import errors as tgi
from jan_serve.dialects.tgi import paths as tgi_paths
from jan_serve.http.errors import Envelopes, ErrorRenderer, Problem
from jan_serve.http.replies import json_bytes

_OPENAI_PATHS: Final = (
    "/v1/responses",
    "/v1/embeddings",
    "/v1/audio",
    "/v1/models",
    "/v1/decide",
    "/v1/systemone",
    *rerank_paths.PLAIN,
    "/api/v0",
    "/health",
    "/ready",
    "/extras",
)

_RENDERERS: Final[dict[str, ErrorRenderer]] = {
    **dict.fromkeys(_OPENAI_PATHS, default_error_body.render_error),
    **dict.fromkeys((anthropic_paths.MESSAGES, anthropic_paths.PREFIX), anthropic.render_error),
    ollama_paths.PREFIX: ollama.render_error,
    rerank_paths.COHERE: cohere.render_error,
    **dict.fromkeys((tgi_paths.PREFIX, *tgi_paths.ROOT_PATHS), tgi.render_error),
}


def envelopes() -> Envelopes:
    return Envelopes(_RENDERERS, flat_errors.render_error)


FORM_PATH: Final = "jan_serve.form_path"
"""In a scope: whose form errors have, where the path is shared and the body decides."""


def form_path(scope: Scope) -> str:
    return scope.get(FORM_PATH, scope["path"])


class _StreamForm(msgspec.Struct, frozen=True):
    """media_type: of the streams. mark: what must precede an error in one, because it ends an event or a line."""

    media_type: bytes
    marks: tuple[bytes, ...]
    render: Callable[[Problem], bytes]


def _event(body: Any) -> bytes:
    return b"data: %b\n\n" % json_bytes(body)


_EVENTS: Final = (b"text/event-stream", (b"\n\n", b"\r\n\r\n"))
_LINES: Final = (b"application/x-ndjson", (b"\n",))
_FLAT: Final = _StreamForm(*_EVENTS, lambda problem: _event(flat_errors.in_band_error(problem)))
_STREAMS: Final[tuple[tuple[str, _StreamForm], ...]] = (
    (
        anthropic_paths.MESSAGES,
        _StreamForm(*_EVENTS, lambda problem: b"event: error\n" + _event(anthropic.error_body(problem))),
    ),
    (
        ollama_paths.PREFIX,
        _StreamForm(*_LINES, lambda problem: json_bytes(ollama.error_body(problem)) + b"\n"),
    ),
    (tgi_paths.PREFIX + "/v1", _StreamForm(*_EVENTS, lambda problem: _event(tgi.in_band_error(problem)))),
    *(
        (path, _StreamForm(*_EVENTS, lambda problem: _event(tgi.stream_error_body(problem))))
        for path in (tgi_paths.PREFIX, *tgi_paths.ROOT_PATHS)
    ),
)


def end_of_broken(path: str, media_type: bytes, tail: bytes, problem: Problem) -> bytes | None:
    """What ends a stream that broke after `tail`. None for anything else: a part of it must not pass for the whole."""
    form = next((form for prefix, form in _STREAMS if path == prefix or path.startswith(prefix + "/")), _FLAT)
    if media_type.partition(b";")[0].strip() != form.media_type or (tail and not tail.endswith(form.marks)):
        return None
    return form.render(problem)
