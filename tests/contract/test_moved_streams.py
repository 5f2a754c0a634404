"""A stream that one server began goes on at another one, from each place, as if one server had written it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from jan_serve.core.transcript import ASKED, RECORDED, Asked, Kind, Record, RecordReader, read_recorded
from jan_serve.errors import Draining, EngineCrashed
from tests.contract.ollama.support import HERMES
from tests.support.engine.fake_client import FakeClient, FakeModels, Script, failing, fake_facts, saying
from tests.support.servers.fronts import http_client

pytestmark = pytest.mark.anyio

WEIGHTS = "0123456789abcdef" * 2
ASKS = Asked("feedface" * 4, 1_700_000_000)
CALL = '<tool_call>\n{"name": "get_city", "arguments": {"city": "Oslo"}}\n</tool_call>'
FUNCTION = {"name": "get_city", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
PROMPT: dict[str, Any] = {"model": "m", "prompt": "Hi", "stream": True}
TOOLS = {"tools": [{"type": "function", "function": FUNCTION}]}

STREAMS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", CHAT | TOOLS | {"stream_options": {"include_usage": True}}),
    ("/v1/chat/completions", CHAT | {"n": 2, "logprobs": True, "top_logprobs": 1}),
    ("/v1/completions", PROMPT | {"n": 2, "logprobs": 1, "echo": True}),
    (
        "/v1/responses",
        {"model": "m", "input": "Hi", "stream": True, "tools": [{"type": "function", **FUNCTION}]},
    ),
    (
        "/v1/messages",
        CHAT | {"max_tokens": 99, "tools": [{"name": "get_city", "input_schema": FUNCTION["parameters"]}]},
    ),
    ("/completion", PROMPT | {"n_probs": 1}),
    ("/infill", {"input_prefix": "a", "input_suffix": "b", "stream": True}),
    ("/api/chat", CHAT | TOOLS),
    ("/api/generate", PROMPT),
    ("/lmdeploy/v1/chat/completions", CHAT | TOOLS),
    ("/generate", PROMPT | {"max_tokens": 99}),
    ("/tgi/generate_stream", {"inputs": "Hi", "parameters": {"details": True, "best_of": 1}}),
    ("/tgi/v1/chat/completions", CHAT),
]
MOMENTS = re.compile(
    rb'("(?:created_at|completed_at|[a-z_]*duration|[a-z_]*time|[a-z_]*_at)":)("[^"]*"|[\d.e-]+)'
)


def front(script: Script, weights: str = WEIGHTS) -> FakeModels:
    facts = fake_facts(
        chat_templates={"default": HERMES},
        weights=weights,
        n_ctx=4096,
        special_tokens=fake_facts().special_tokens
        | {name: fake_facts().special_tokens["bos"] for name in ("fim_pre", "fim_suf", "fim_mid")},
    )
    return FakeModels(FakeClient(name="m", facts=facts, script=script))


async def records(
    script: Script, path: str, body: dict[str, Any], asked: Asked = ASKS, log: bytes = b""
) -> list[Record]:
    """Records of the answer of one server."""
    async with http_client(front(script), sse_ping_s=60.0) as client:
        content = log + msgspec.json.encode(body)
        answer = await client.post(path, content=content, headers={ASKED.decode(): asked.header.decode()})
    assert answer.status_code == 200, answer.text
    weights, ping = read_recorded(answer.headers[RECORDED.decode()].encode())
    assert weights == WEIGHTS
    assert bool(ping) is not path.startswith(
        ("/api/", "/lmdeploy/", "/generate")
    )  # their clients know no comments
    reader = RecordReader()
    found = reader.feed(answer.content)
    assert reader.is_between
    return found


def text(found: Sequence[Record]) -> bytes:
    """What the client reads, without what tells the time."""
    shown = b"".join(record.payload for record in found if record.kind is not Kind.STUCK)
    return MOMENTS.sub(rb"\1 0", shown)


def rest_after(found: Sequence[Record]) -> tuple[Asked, bytes]:
    """What a proxy asks of another server that has so much."""
    log = b"".join(record.log for record in found)
    shown = sum(record.kind is Kind.FRAME for record in found)
    return msgspec.structs.replace(ASKS, weights=WEIGHTS, log_bytes=len(log), shown=shown), log


@pytest.mark.parametrize("pieces", [("Hel", "lo", ", you"), (*CALL,)], ids=["text", "call"])
@pytest.mark.parametrize(("path", "body"), STREAMS)
async def test_from_each_record_another_server_goes_on(
    path: str, body: dict[str, Any], pieces: tuple[str, ...]
) -> None:
    whole = await records(saying(*pieces), path, body)
    assert len(whole) > 1 and all(record.kind is Kind.FRAME for record in whole)
    for cut in range(len(whole) + 1):
        rest = await records(saying(*pieces), path, body, *rest_after(whole[:cut]))
        assert text([*whole[:cut], *rest]) == text(whole), cut


async def test_without_a_proxy_a_stream_is_as_ever() -> None:
    for path, body in STREAMS:
        async with http_client(front(saying("Hello"))) as client:
            plain = await client.post(path, json=body)
        assert RECORDED.decode() not in plain.headers
        found = await records(saying("Hello"), path, body)
        shown = re.sub(rb"\nid: [^\n]*", b"", plain.content)
        assert MOMENTS.sub(b"", shown).count(b"\n") == text(found).count(b"\n")


@pytest.mark.parametrize(
    ("error", "kind"),
    [(Draining("The server stops."), Kind.FAILURE), (EngineCrashed("It ended."), Kind.FRAME)],
)
async def test_what_another_server_may_do_better_is_told_apart(error: Exception, kind: Kind) -> None:
    found = await records(failing(error, "Hel"), "/v1/chat/completions", CHAT)
    assert [record.kind for record in found] == [Kind.FRAME, Kind.FRAME, kind]
    # One that cannot even begin has nothing for the client.
    cut = rest_after(found[:2])
    again = await records(failing(error), "/v1/chat/completions", CHAT, *cut)
    assert [record.kind for record in again] == [Kind.FAILURE]


@pytest.mark.parametrize("change", ["weights", "log", "short", "header", "events", "frames"])
async def test_what_no_proxy_of_ours_sends_is_refused(change: str) -> None:
    path, body = "/v1/chat/completions", CHAT
    whole = await records(saying("Hel", "lo"), path, body)
    asked, log = rest_after(whole[:2])
    header = asked.header
    match change:
        case "weights":
            header = msgspec.structs.replace(asked, weights="f" * 32).header
        case "log":
            log = b"\xff" + log[1:]
        case "short":
            header = msgspec.structs.replace(asked, log_bytes=asked.log_bytes + 10**6).header
        case "header":
            header += b" 1"
        case "events":
            log = log[:4] + b"\xc1" + log[5:]
        case _:
            asked = msgspec.structs.replace(asked, shown=99)
            found = await records(saying("Hel", "lo"), path, body, asked, log)
            assert found == []
            return
    async with http_client(front(saying("Hel", "lo"))) as client:
        content = log + msgspec.json.encode(body)
        answer = await client.post(path, content=content, headers={ASKED.decode(): header.decode()})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["code"] == "invalid_state"
