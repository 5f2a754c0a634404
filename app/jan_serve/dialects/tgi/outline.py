"""Where Text Generation Inference's routes are, and what a proxy knows of them."""

from __future__ import annotations

from typing import Final

from jan_serve.dialects.outline import READ, Outline, Route, StreamErrors, routes
from jan_serve.dialects.tgi.errors import in_band_error, render_error, stream_error_body
from jan_serve.http.replies import frame

PREFIX: Final = "/tgi"
ROOT_PATHS: Final = (
    "/", "/generate", "/generate_stream", "/tokenize", "/chat_tokenize", "/info", "/invocations", "/vertex", "/ping",
)  # fmt: skip
"""Routes at the root, where no other protocol has them."""
OPEN_PATHS: Final = ("/ping", PREFIX, f"{PREFIX}/", f"{PREFIX}/ping", f"{PREFIX}/health")
"""Signs of life. TGI serves its facts and metrics without a key too; here facts load a model."""

_NATIVE_ERRORS: Final = StreamErrors(lambda problem: frame(stream_error_body(problem)))

OUTLINE: Final = Outline(
    (PREFIX, *ROOT_PATHS),
    errors=dict.fromkeys((PREFIX, *ROOT_PATHS), render_error),
    open_paths=OPEN_PATHS,
    probe_paths=(f"{PREFIX}/health",),
    forwarded=(
        Route(f"{PREFIX}/*", frozenset({"GET", "POST"})),
        Route("/info", READ),
        *routes("/", PREFIX, "/generate", "/generate_stream", "/tokenize", "/chat_tokenize"),
        *routes("/invocations", "/vertex"),
    ),
    stream_errors={
        **dict.fromkeys((PREFIX, *ROOT_PATHS), _NATIVE_ERRORS),
        f"{PREFIX}/v1": StreamErrors(lambda problem: frame(in_band_error(problem))),
    },
    prompt_members=("tools", "messages", "prompt", "input", "inputs"),
)
