"""What a node says that it had cached corrects what the proxy believes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.http.support import EXACT_FLAGS
from tests.support.clients.raw_http import post
from tests.support.servers.fake_nodes import running_proxy
from tests.support.servers.served import serving

pytestmark = [pytest.mark.integration, pytest.mark.anyio]

PROMPT = "Remember these words: " + "apple pear plum " * 100


@pytest.mark.parametrize("stream", [False, True])
async def test_a_wrong_guess_is_corrected_by_the_answer_in_lmdeploys_dialect(
    tmp_path: Path, stream: bool
) -> None:
    body: dict[str, Any] = {
        "model": "jan-tiny",
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": 4,
        "temperature": 0,
        "stream": stream,
    }
    if stream:
        body["stream_options"] = {"include_usage": True}
    with serving(tmp_path, "--port", "0", *EXACT_FLAGS) as server:
        url = server.url()
        async with running_proxy() as front:
            await front.client.post("/nodes/add", json={"url": f"{url}/lmdeploy"})
            [node] = front.proxy.fleet

            async def ask() -> int:
                """How many tokens were cached."""
                before = node.cached_tokens
                answer = await front.client.post("/v1/chat/completions", json=body)
                assert answer.status_code == 200, answer.text
                return node.cached_tokens - before

            assert await ask() < 100
            assert await ask() > 300
            assert node.trust > 0.95
            assert post(url, "/sleep?level=2", {}).status == 200
            assert post(url, "/wakeup", {}).status == 200
            assert await ask() < 100
            assert node.trust < 0.95
