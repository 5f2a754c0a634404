"""Paths that llama-server has beside OpenAI's, for clients that are configured without `/v1`, or with it."""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

from jan_serve.http.reroute import reroute

VERSION: Final = "/v1"
_UNVERSIONED: Final = frozenset(
    {
        "/chat/completions",
        "/completions",
        "/embeddings",
        "/responses",
        "/responses/input_tokens",
        "/audio/transcriptions",
    }
)
_VERSIONED: Final = frozenset({"/v1/health"})


def rewrite_head(scope: Scope) -> None:
    path: str = scope["path"]
    if path in _UNVERSIONED:
        reroute(scope, VERSION + path)
    elif path in _VERSIONED:
        reroute(scope, path.removeprefix(VERSION))
