"""Where LMDeploy's routes are, and what a proxy knows of them."""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

from jan_serve.dialects.outline import Outline, members_reader, routes
from jan_serve.dialects.shared.lmdeploy_forms import render_error
from jan_serve.http.paths import is_below, reroute

PREFIX: Final = "/lmdeploy"
DEPRECATED_CHAT: Final = "/v1/chat/interactive"
DISTSERVE: Final = "/distserve"
CONTROL_PATHS: Final = (
    "/abort_request",
    "/sleep",
    "/wakeup",
    "/is_sleeping",
    "/terminate",
    "/update_weights",
)
ROOT_PATHS: Final = ("/v1/encode", "/pooling", DEPRECATED_CHAT, DISTSERVE, *CONTROL_PATHS)
_STATE_PATHS: Final = (f"{PREFIX}/health", f"{PREFIX}/metrics")

SHARED_PATH: Final = "/generate"
LMDEPLOY_PATH: Final = "/lmdeploy/generate"
_members: Final = members_reader("inputs", "prompt", "input_ids", "parameters")


def is_lmdeploy_body(body: bytes) -> bool:
    """Whether a body is LMDeploy's. False for anything but a JSON object."""
    found = _members(body)
    if found is None or "inputs" in found:
        return False
    return bool(found & {"prompt", "input_ids"}) or "parameters" not in found


_NEWER: Final = ("/v1/messages", "/v1/responses")


def rewrite_scope(scope: Scope) -> None:
    """Anthropic's messages and OpenAI's responses have their own forms at LMDeploy too: those of the root."""
    path: str = scope["path"].removeprefix(PREFIX)
    if path != scope["path"] and is_below(path, _NEWER):
        reroute(scope, path)


def body_path(path: str, body: bytes) -> str:
    return LMDEPLOY_PATH if path == SHARED_PATH and is_lmdeploy_body(body) else path


OUTLINE: Final = Outline(
    (PREFIX, *ROOT_PATHS),
    errors=dict.fromkeys((PREFIX, *ROOT_PATHS), render_error),
    body_path=body_path,
    rewrite_scope=rewrite_scope,
    open_paths=_STATE_PATHS[:1],
    probe_paths=_STATE_PATHS,
    drain_paths=_STATE_PATHS,
    forwarded=(
        *routes("/v1/encode", "/pooling"),
        *routes(
            LMDEPLOY_PATH, f"{PREFIX}/pooling", f"{PREFIX}/v1/chat/completions", f"{PREFIX}/v1/completions"
        ),
        *routes(f"{PREFIX}/v1/embeddings", f"{PREFIX}/v1/encode"),
    ),
    prompt_members=("tools", "messages", "prompt", "input", "input_ids"),
    inner_members=("migration_request", "with_cache", "preserve_cache"),
)
