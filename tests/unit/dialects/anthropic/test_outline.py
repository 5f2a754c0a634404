"""Which paths are Anthropic's."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.dialects.anthropic.outline import rewrite_scope


@pytest.mark.parametrize(
    ("path", "versioned", "served"),
    [
        ("/v1/messages", False, "/v1/messages"),
        ("/v1/v1/messages", False, "/v1/messages"),
        ("/v1/v1/messages/count_tokens", True, "/v1/messages/count_tokens"),
        ("/anthropic/v1/messages", False, "/v1/messages"),
        ("/v1/v1/messagesx", False, "/v1/v1/messagesx"),
        ("/v1/models", False, "/v1/models"),
        ("/v1/models", True, "/anthropic/v1/models"),
        ("/v1/models/a/b", True, "/anthropic/v1/models/a/b"),
        ("/v1/modelsx", True, "/v1/modelsx"),
        ("/v1/files", True, "/anthropic/v1/files"),
        ("/v1/chat/completions", True, "/v1/chat/completions"),
    ],
)
def test_paths(path: str, served: str, *, versioned: bool) -> None:
    headers = [(b"anthropic-version", b"2023-06-01")] if versioned else []
    scope: dict[str, Any] = {"type": "http", "path": path, "raw_path": path.encode(), "headers": headers}
    rewrite_scope(scope)
    assert (scope["path"], scope["raw_path"]) == (served, served.encode())
