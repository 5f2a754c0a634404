"""/v1/messages over fake models: bodies and streams byte for byte, cut at every point; rejections and failures."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import httpx
import msgspec
import pytest

from jan_serve.dialects.anthropic.dialect import anthropic_dialect
from jan_serve.dialects.openai.dialect import openai_dialect
from jan_serve.errors import LONGER_CONTEXT, ContextLengthExceeded, EngineCrashed, Overloaded
from jan_serve.ipc.messages import Accepted, EngineEvent, EngineRequest, RequestCompleted
from tests.support.clients.message_events import Event, events_of, replayed
from tests.support.engine.fake_client import (
    FakeClient,
    FakeModels,
    Script,
    endings,
    failing,
    fake_facts,
    prompt_text,
    saying,
)
from tests.support.servers.fronts import http_client, live_server, raw_client, raw_post

pytestmark = pytest.mark.anyio

PATH: Final = "/v1/messages"
HI: Final[dict[str, Any]] = {
    "model": "claude-x",
    "max_tokens": 99,
    "messages": [{"role": "user", "content": "Hi"}],
}
TOOLS: Final[list[dict[str, Any]]] = [
    {"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}},
    {"name": "now", "input_schema": {"type": "object"}},
]
ADAPTIVE: Final = {"thinking": {"type": "adaptive"}, "tools": TOOLS}

TEMPLATE: Final = (
    "{% if tools %}<tools>{{ tools | tojson }}</tools><tool_call>{% endif %}"
    "{% for m in messages %}[{{ m.role }}]"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content or '' }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }}"
    "{{ c.function.arguments | tojson }}</tool_call>{% endfor %}\n{% endfor %}[assistant]"
)
ANSWER: Final = (
    "<think>\nHmm, é🙂.\n</think>\n\nLet me see.\n"
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Tromsø"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
)
CONTENT: Final[list[Any]] = [
    {"type": "thinking", "thinking": "Hmm, é🙂.", "signature": "jan-serve"},
    {"type": "text", "text": "Let me see."},
    {"type": "tool_use", "name": "get_weather", "input": {"city": "Tromsø"}},
    {"type": "tool_use", "name": "now", "input": {}},
]
_MESSAGE_ID: Final = re.compile(r'"msg_[0-9a-f]{24}"')
_CALL_ID: Final = re.compile(r'"toolu_[0-9a-f]{24}"')


def models(script: Script) -> FakeModels:
    facts = fake_facts(n_ctx=100_000, chat_templates={"default": TEMPLATE})
    return FakeModels(FakeClient(script=script, facts=facts))


def application(found: FakeModels, **settings: Any) -> AbstractAsyncContextManager[httpx.AsyncClient]:
    return http_client(found, dialects=(openai_dialect, anthropic_dialect), **settings)


async def post(script: Script | None = None, **body: Any) -> httpx.Response:
    async with application(models(script or saying("Hel", "lo."))) as client:
        return await client.post(PATH, json=HI | body)


async def message(script: Script | None = None, **body: Any) -> Event:
    response = await post(script, **body)
    assert response.status_code == 200, response.text
    return response.json()


async def stream(script: Script | None = None, **body: Any) -> list[Event]:
    response = await post(script, stream=True, **body)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    return events_of(response.text)


def content_of(found: Event) -> list[Event]:
    """Without ids."""
    return [{key: value for key, value in block.items() if key != "id"} for block in found["content"]]


def with_marks(text: str) -> str:
    return _CALL_ID.sub('"toolu_X"', _MESSAGE_ID.sub('"msg_X"', text))


def usage(output: int, prompt: int) -> str:
    return (
        f'"usage":{{"input_tokens":{prompt},"cache_creation_input_tokens":0,"cache_read_input_tokens":0,'
        f'"output_tokens":{output},"output_tokens_details":{{"thinking_tokens":0}}}}'
    )


async def test_the_whole_answer_byte_for_byte() -> None:
    response = await post()
    count = len("[user]Hi[assistant]")
    assert with_marks(response.text) == (
        '{"id":"msg_X","type":"message","role":"assistant","model":"claude-x","content":'
        f'[{{"type":"text","text":"Hello."}}],"stop_reason":"end_turn","stop_sequence":null,{usage(6, count)}}}'
    )
    assert response.headers["request-id"] == response.headers["x-request-id"]


def frame(name: str, members: str) -> str:
    return f'event: {name}\ndata: {{"type":"{name}"{members}}}\n\n'


async def test_the_stream_byte_for_byte() -> None:
    text = '<think>\nHm\n</think>\n\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>ok'
    response = await post(saying(text), **ADAPTIVE, stream=True)
    count = events_of(response.text)[0]["message"]["usage"]["input_tokens"]

    def block(index: int, start: str, *deltas: str) -> str:
        return (
            frame("content_block_start", f',"index":{index},"content_block":{{{start}}}')
            + "".join(frame("content_block_delta", f',"index":{index},"delta":{{{each}}}') for each in deltas)
            + frame("content_block_stop", f',"index":{index}')
        )

    assert with_marks(response.text) == (
        frame(
            "message_start",
            ',"message":{"id":"msg_X","type":"message","role":"assistant","model":"claude-x","content":[],'
            f'"stop_reason":null,"stop_sequence":null,{usage(0, count)}}}',
        )
        + block(
            0,
            '"type":"thinking","thinking":"","signature":""',
            '"type":"thinking_delta","thinking":"Hm"',
            '"type":"signature_delta","signature":"jan-serve"',
        )
        + block(
            1,
            '"type":"tool_use","id":"toolu_X","name":"now","input":{}',
            '"type":"input_json_delta","partial_json":"{}"',
        )
        + block(2, '"type":"text","text":""', '"type":"text_delta","text":"ok"')
        + frame(
            "message_delta",
            f',"delta":{{"stop_reason":"tool_use","stop_sequence":null}},{usage(len(text), count)}',
        )
        + frame("message_stop", "")
    )


async def test_streams_are_the_same_however_the_text_is_cut() -> None:
    found = models(saying(*ANSWER))
    async with application(found) as client:

        async def streamed() -> Event:
            return replayed(events_of((await client.post(PATH, json=HI | ADAPTIVE | {"stream": True})).text))

        assert content_of((await client.post(PATH, json=HI | ADAPTIVE)).json()) == CONTENT
        assert content_of(await streamed()) == CONTENT
        for cut in range(len(ANSWER) + 1):
            found.clients[0].script = saying(ANSWER[:cut], ANSWER[cut:])
            final = await streamed()
            assert (content_of(final), final["stop_reason"]) == (CONTENT, "tool_use")


async def test_omitted_thoughts_come_back_in_their_signature() -> None:
    omitted = {"thinking": {"type": "adaptive", "display": "omitted"}}
    script = saying(*"<think>\nHmm.\n</think>\n\nYes.")
    [thought, _] = (await message(script, **omitted))["content"]
    assert (thought["thinking"], "Hmm" in thought["signature"]) == ("", False)
    events = await stream(script, **omitted)
    assert not any(event.get("delta", {}).get("type") == "thinking_delta" for event in events)
    assert replayed(events)["content"][0] == thought
    found = models(saying("."))
    async with application(found) as client:
        said: Event = {"role": "assistant", "content": [thought, {"type": "text", "text": "Yes."}]}
        turns = [*HI["messages"], said, {"role": "user", "content": "Why?"}]
        await client.post(PATH, json=HI | {"messages": turns})
    assert "[assistant]<think>Hmm.</think>Yes." in prompt_text(found.clients[0].requests[0])


STOPS: Final[list[tuple[Script, dict[str, Any], str, str | None]]] = [
    (saying("a"), {}, "end_turn", None),
    (saying("a", reason="abort"), {}, "end_turn", None),
    (saying("a", reason="length", eos=False), {}, "max_tokens", None),
    (saying("a", reason="length", eos=False, context_full=True), {}, "model_context_window_exceeded", None),
    (saying("a", stop="END", eos=False), {"stop_sequences": ["END"]}, "stop_sequence", "END"),
    (saying(ANSWER), {"tools": TOOLS}, "tool_use", None),
    (saying(ANSWER[:-30], reason="length", eos=False), {"tools": TOOLS}, "max_tokens", None),
]


@pytest.mark.parametrize(("script", "body", "reason", "sequence"), STOPS)
async def test_stop_reasons(script: Script, body: dict[str, Any], reason: str, sequence: str | None) -> None:
    for found in (await message(script, **body), replayed(await stream(script, **body))):
        assert (found["stop_reason"], found["stop_sequence"]) == (reason, sequence)


@pytest.mark.parametrize("cut_member", ['"to', "12", "-1.5", "tr"])
async def test_a_call_that_was_cut_short_has_the_members_that_are_complete(cut_member: str) -> None:
    """A number may have had more digits."""
    cut = f'<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "Oslo", "day": {cut_member}'
    found = await message(saying(*cut, reason="length", eos=False), tools=TOOLS)
    assert content_of(found) == [{"type": "tool_use", "name": "get_weather", "input": {"city": "Oslo"}}]


async def test_an_answer_without_text_has_no_blocks() -> None:
    assert (await message(saying()))["content"] == []
    assert [event["type"] for event in await stream(saying())] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]


async def test_what_was_in_the_cache_is_read_from_it() -> None:
    async def script(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        yield Accepted(request.id, 35)
        for event in endings(request, 2):
            if isinstance(event, RequestCompleted):
                yield msgspec.structs.replace(event, prompt_tokens=35, cached_tokens=30)
            else:
                yield event

    for found in (await message(script), replayed(await stream(script))):
        counts = found["usage"]
        assert (counts["input_tokens"], counts["cache_read_input_tokens"], counts["output_tokens"]) == (
            5,
            30,
            2,
        )


async def test_pings_come_while_the_prompt_is_read() -> None:
    go_on = asyncio.Event()

    async def script(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        yield Accepted(request.id, 1)
        await go_on.wait()
        for event in endings(request, 0):
            yield event

    body = json.dumps(HI | {"stream": True}).encode()
    async with live_server(models(script), sse_ping_s=0.01) as port, raw_client(port) as client:
        await client.send(raw_post(PATH, body, "Connection: close"))
        await client.until(b"event: message_start\n")
        await client.until(b'event: ping\ndata: {"type":"ping"}\n\n')
        go_on.set()
        assert b"event: message_stop\n" in await client.rest()


async def test_a_last_message_of_the_assistant_is_continued() -> None:
    found = models(saying("lo."))
    async with application(found) as client:
        turns = [*HI["messages"], {"role": "assistant", "content": "Hel"}]
        answer = (await client.post(PATH, json=HI | {"messages": turns})).json()
    assert prompt_text(found.clients[0].requests[0]).endswith("[user]Hi[assistant]Hel")
    assert content_of(answer) == [{"type": "text", "text": "lo."}]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "kind", "words"),
    [
        (
            ContextLengthExceeded(600, 512), 400, "invalid_request_error",
            f"prompt is too long: 600 tokens > 512 maximum. {LONGER_CONTEXT}",
        ),
        (Overloaded("Full.", retry_after=3), 529, "overloaded_error", "Full."),
    ],
)  # fmt: skip
async def test_refusals_have_their_status_on_streams_too(
    error: Exception, status: int, kind: str, words: str, *, streamed: bool
) -> None:
    response = await post(failing(error), stream=streamed)
    assert response.status_code == status
    assert response.json() == {
        "type": "error",
        "error": {"type": kind, "message": words},
        "request_id": response.headers["request-id"],
    }
    assert response.headers.get("retry-after") == ("3" if status == 529 else None)


async def test_a_failure_in_a_stream_is_its_last_event() -> None:
    response = await post(failing(EngineCrashed("It ended."), "Hel"), stream=True)
    last = events_of(response.text)[-1]
    assert last == {
        "type": "error",
        "error": {"type": "api_error", "message": "It ended."},
        "request_id": response.headers["request-id"],
    }


async def test_what_is_left_out_is_named_in_a_header() -> None:
    tools = [*TOOLS, {"type": "web_search_20250305", "name": "web_search"}]
    for streamed in (False, True):
        response = await post(tools=tools, stream=streamed)
        assert response.headers["x-jan-serve-warning"].startswith("tools[2]: web_search_20250305")


async def test_warnings_do_not_fill_the_head() -> None:
    blocks = [{"type": "server_tool_use"}] * 40 + [{"type": f"other_{number}"} for number in range(40)]
    turns = [*HI["messages"], {"role": "assistant", "content": blocks}, {"role": "user", "content": "Go"}]
    found = (await post(messages=turns)).headers.get_list("x-jan-serve-warning")
    assert len(found) == len(set(found)) == 16


async def test_images_of_the_user_are_refused_without_being_opened() -> None:
    source = {"type": "url", "url": "http://127.0.0.1:1/x.png"}
    turns = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    response = await post(messages=turns)
    assert response.status_code == 400
    assert "reads text only; no model of this server can see" in response.json()["error"]["message"]


async def test_tokens_are_counted_without_an_answer() -> None:
    found = models(saying("a"))
    body: dict[str, Any] = {name: value for name, value in (HI | ADAPTIVE).items() if name != "max_tokens"}
    async with application(found) as client:
        counted = await client.post(f"{PATH}/count_tokens?beta=true", json=body)
        assert found.clients[0].requests == []
        await client.post(PATH, json=HI | ADAPTIVE)
    begin_of_sequence = 1
    text = prompt_text(found.clients[0].requests[0])
    assert counted.json() == {"input_tokens": len(text.encode()) + begin_of_sequence}
    assert "request-id" in counted.headers


async def test_models_have_the_form_that_the_client_reads() -> None:
    version = {"anthropic-version": "2023-06-01"}
    async with application(FakeModels(FakeClient("a"), FakeClient("b"))) as client:
        page = (await client.get("/v1/models?limit=1", headers=version)).json()
        one = (await client.get("/v1/models/b", headers=version)).json()
        missing = await client.get("/v1/models/c", headers=version)
        wrong = await client.get("/v1/models?limit=0", headers=version)
        openai = (await client.get("/v1/models")).json()
    assert ([info["id"] for info in page["data"]], page["has_more"], page["last_id"]) == (["a"], True, "a")
    assert (one["type"], one["id"], one["display_name"]) == ("model", "b", "b")
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "not_found_error")
    assert (wrong.status_code, wrong.json()["error"]["type"]) == (400, "invalid_request_error")
    assert openai["object"] == "list"


async def test_paths_that_clients_try() -> None:
    async with application(models(saying("a")), model="fake") as client:
        for path in ("/v1/messages?beta=true", "/v1/v1/messages", "/anthropic/v1/messages"):
            assert (await client.post(path, json=HI)).status_code == 200
        assert (await client.head("/")).status_code == 200
        files = await client.get("/v1/files", headers={"anthropic-version": "2023-06-01"})
        got = await client.get(PATH)
    assert (files.status_code, files.json()["error"]["type"]) == (404, "not_found_error")
    assert (got.status_code, got.json()["type"]) == (405, "error")


async def test_keys_in_either_header() -> None:
    async with application(models(saying("a")), api_keys=("secret",)) as client:
        for headers in ({"x-api-key": "secret"}, {"authorization": "Bearer secret"}):
            assert (await client.post(PATH, json=HI, headers=headers)).status_code == 200
        refused = await client.post(PATH, json=HI, headers={"x-api-key": "other"})
        assert (await client.head("/")).status_code == 200
    assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")
    assert refused.json()["request_id"] == refused.headers["request-id"]


async def test_a_body_that_does_not_fit_is_a_400() -> None:
    response = await post(max_tokens=-1)
    assert response.status_code == 400
    assert "max_tokens: must be 0 or more" in response.json()["error"]["message"]
    async with application(models(saying("a"))) as client:
        broken = await client.post(PATH, content=b"{", headers={"content-type": "application/json"})
    assert (broken.status_code, broken.json()["error"]["type"]) == (400, "invalid_request_error")


@pytest.mark.parametrize("streamed", [False, True])
async def test_unknown_names_are_served_by_a_default_model_only_if_it_is_configured(
    *, streamed: bool
) -> None:
    async with application(models(saying("a")), model=None) as client:
        refused = await client.post(PATH, json=HI | {"stream": streamed})
    assert refused.status_code == 404
    assert json.loads(refused.text)["error"]["message"].startswith("model: claude-x. ")
    assert (await post(stream=streamed)).status_code == 200
