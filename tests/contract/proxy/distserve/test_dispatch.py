"""What a prefill node answers is not trusted: another one is tried, or the client gets a clear error."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.fake_nodes import FakeNode, fake_nodes, reply, running_proxy, sending

pytestmark = pytest.mark.anyio

NESTED = b'{"id":' + b"[" * 5000


@pytest.mark.parametrize(
    ("content", "status", "code", "words"),
    [
        (NESTED, 200, 502, "does not say where the state of a prefill is"),
        (b"\xff", 200, 502, "does not say where the state of a prefill is"),
        ({"id": "x"}, 200, 502, "does not say where the state of a prefill is"),
        ({"message": "too long"}, 400, 400, "too long"),
        ({"message": 7}, 422, 422, "refuses the request"),
        (NESTED, 400, 400, "refuses the request"),
        (b'{"message":"\xff"}', 400, 400, "refuses the request"),
    ],
    ids=range(7),
)
async def test_prefills_that_are_none(content: Any, status: int, code: int, words: str) -> None:
    prefill = FakeNode("p", answer=sending(reply(content, status)))
    async with (
        fake_nodes(prefill, FakeNode("d")) as (_, decode),
        running_proxy(serving="DistServe", short_prompt_tokens=0) as proxy,
    ):
        await proxy.add(prefill, role=2)
        await proxy.add(decode, role=3)
        answer = await proxy.chat()
        assert (answer.status_code, words in answer.text) == (code, True), answer.text
        assert decode.generations == []


async def test_a_failed_prefill_is_tried_at_another_node_and_freed_where_no_link_can_be() -> None:
    good = reply({"id": "7", "remote_token_ids": [3], "cache_block_ids": [1]})
    kept = FakeNode("kept", answer=sending(good))
    kept.routes["/distserve/free_cache"] = sending(reply({"status": 1}))
    async with (
        fake_nodes(FakeNode("bad", answer=sending(reply(NESTED))), kept, FakeNode("d")) as (bad, _, decode),
        running_proxy(serving="DistServe", short_prompt_tokens=0) as proxy,
    ):
        await proxy.add(bad, kept, role=2)
        await proxy.add(decode, role=3)
        for _ in range(2):  # of two equal nodes, one or the other comes first
            answer = await proxy.chat()
            assert answer.status_code == 502
            assert "are not linked: a node" in answer.text, answer.text
        freed = [call.json() for call in kept.calls if call.path == "/distserve/free_cache"]
        assert freed == [{"remote_engine_id": "", "remote_session_id": 7}] * 2
