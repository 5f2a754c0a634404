"""Where Ollama's routes are, and what a proxy knows of them."""

from __future__ import annotations

from typing import Final

from jan_serve.dialects.ollama.errors import error_body, render_error
from jan_serve.dialects.outline import READ, ModelList, Outline, Route, StreamErrors, routes
from jan_serve.http.replies import json_bytes

PREFIX: Final = "/api"
UPLOADS: Final = "/api/blobs"


def _list(path: str, latest: str, *, is_momentary: bool = False) -> ModelList:
    """latest: the member with the time by which rows are sorted."""
    return ModelList(
        path,
        "models",
        "name",
        lambda rows, _: {"models": rows},
        lambda row: str(row.get(latest)),
        is_momentary=is_momentary,
    )


OUTLINE: Final = Outline(
    (PREFIX,),
    errors={PREFIX: render_error},
    greeting="Ollama is running",  # at `/`, where its clients look for it
    upload_paths=(UPLOADS,),
    head_paths=(UPLOADS,),
    forwarded=(
        *routes("/api/chat", "/api/generate", "/api/embed", "/api/embeddings", "/api/show"),
        Route("/api/version", READ),
    ),
    stream_errors={
        PREFIX: StreamErrors(
            lambda problem: json_bytes(error_body(problem)) + b"\n", b"application/x-ndjson", (b"\n",)
        )
    },
    lists=(_list("/api/tags", "modified_at"), _list("/api/ps", "expires_at", is_momentary=True)),
    prompt_members=("tools", "system", "messages", "prompt", "input"),
)
