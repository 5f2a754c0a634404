"""Where OpenAI's routes are, with those of Jan and llama-server, and what a proxy knows of them."""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

from jan_serve.dialects.outline import Outline, Route, members_reader, routes
from jan_serve.dialects.shared.default_error_body import render_error
from jan_serve.http.paths import reroute

VERSION: Final = "/v1"
_TRANSCRIPTIONS: Final = "/v1/audio/transcriptions"
_UNVERSIONED: Final = frozenset(
    {
        "/chat/completions",
        "/chat/completions/input_tokens",
        "/completions",
        "/embeddings",
        "/responses",
        "/responses/input_tokens",
        "/audio/transcriptions",
    }
)
_VERSIONED: Final = frozenset({"/v1/health"})
"""llama-server has these beside OpenAI's, for clients that are configured without `/v1`, or with it."""


SHARED_PATH: Final = "/tokenize"
LLAMA_PATH: Final = "/llama-server/tokenize"
_members: Final = members_reader("inputs", "content")


def is_llama_body(body: bytes) -> bool:
    """Whether a body is llama-server's, and not Text Generation Inference's. False for anything but a JSON object."""
    return _members(body) == frozenset({"content"})


def body_path(path: str, body: bytes) -> str:
    return LLAMA_PATH if path == SHARED_PATH and is_llama_body(body) else path


def rewrite_scope(scope: Scope) -> None:
    path: str = scope["path"]
    if path in _UNVERSIONED:
        reroute(scope, VERSION + path)
    elif path in _VERSIONED:
        reroute(scope, path.removeprefix(VERSION))


OUTLINE: Final = Outline(
    (
        "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models", "/v1/responses", "/v1/audio",
        "/v1/files", "/v1/batches",
        "/extras", "/llama-server", "/apply-template", "/completion", "/detokenize", "/infill",
        "/lora-adapters", "/props", "/slots",
    ),
    # Not those of chats and completions: the default of a server is this form, and that of LMDeploy's proxy is not.
    errors=dict.fromkeys(
        ("/v1/embeddings", "/v1/models", "/v1/responses", "/v1/audio", "/v1/files", "/v1/batches", "/extras"),
        render_error,
    ),
    rewrite_scope=rewrite_scope,
    body_path=body_path,
    form_paths=(_TRANSCRIPTIONS, "/v1/files"),
    journal_paths=("/v1/files", "/v1/batches"),
    forwarded=(
        Route("/v1/chat/completions", migrates=True),
        Route("/v1/completions", migrates=True),
        Route("/v1/responses", sticky="keeps"),
        Route("/v1/responses/*", frozenset({"GET", "POST", "DELETE"}), sticky="follows"),
        *routes("/v1/chat/completions/input_tokens", "/v1/embeddings", _TRANSCRIPTIONS),
        *routes("/infill", "/completion", "/llama-server/tokenize", "/detokenize", "/apply-template"),
        *routes("/extras/tokenize", "/extras/tokenize/count", "/extras/detokenize"),
        *routes("/extras/grammar", "/extras/grammar/explain"),
    ),
    prompt_members=("tools", "instructions", "messages", "prompt", "input"),
)  # fmt: skip
