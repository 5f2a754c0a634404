"""The 404 of each protocol for a model of the catalogue that is not here: it names the command that downloads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.managed import add_model, managed_app

pytestmark = pytest.mark.anyio

NAME = "qwen3-4b"
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
CALLS: list[tuple[str, dict[str, Any] | None]] = [
    ("/v1/chat/completions", CHAT),
    ("/v1/completions", {"prompt": "Hi"}),
    ("/v1/responses", {"input": "Hi"}),
    ("/v1/embeddings", {"input": "Hi"}),
    ("/v1/rerank", {"query": "a", "documents": ["b"]}),
    ("/v1/messages", {**CHAT, "max_tokens": 5}),
    ("/v1/decide", {"state": "a", "questions": {"x": {"question": "b", "options": ["c", "d"]}}}),
    ("/api/chat", CHAT),
    ("/api/generate", {"prompt": "Hi"}),
    ("/api/embed", {"input": "Hi"}),
    ("/api/show", {}),
    ("/models/load", {}),
    ("/models/unload", {}),
    (f"/v1/models/{NAME}", None),
    (f"/api/v0/models/{NAME}", None),
    (f"/props?model={NAME}", None),
]


@pytest.mark.parametrize(("path", "body"), CALLS, ids=[path for path, _ in CALLS])
async def test_the_answer_names_the_command(tmp_path: Path, path: str, body: dict[str, Any] | None) -> None:
    add_model(tmp_path, "alpha")
    async with managed_app(tmp_path) as managed:
        for name, has in ((NAME, True), ("nothing-of-this-name", False)):
            url = path.replace(NAME, name)
            if body is None:
                answer = await managed.client.get(url)
            else:
                answer = await managed.client.post(url, json={"model": name, **body})
            assert answer.status_code == 404, answer.text
            assert (f"`jan-serve pull {name}`" in answer.text) is has
