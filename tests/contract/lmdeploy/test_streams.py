"""LMDeploy's streams and bodies byte for byte. Times and random ids, which differ between calls, are replaced."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from jan_serve.core.events import TokenInfo, TokenLogprob
from jan_serve.errors import LONGER_CONTEXT, ContextLengthExceeded, EngineCrashed, ModelFailed, Overloaded
from jan_serve.ipc.messages import Accepted, Chunk, EngineEvent, EngineRequest
from tests.contract.lmdeploy import support
from tests.contract.lmdeploy.support import http_client
from tests.support.engine.fake_client import (
    FakeClient,
    FakeModels,
    Script,
    endings,
    failing,
    fake_facts,
    saying,
)

pytestmark = pytest.mark.anyio

CHAT: dict[str, Any] = {"model": "fake", "messages": [{"role": "user", "content": "Hi"}], "session_id": 5}
TEXT: dict[str, Any] = {"model": "fake", "prompt": "ab"}
DONE = "data: [DONE]\n\n"

_CREATED = re.compile(r'"created":\d{10}')


async def post(path: str, body: Any, models: FakeModels | None = None) -> tuple[int, str]:
    """Status and body under /lmdeploy."""
    response = await support.post(f"/lmdeploy{path}", body, models)
    if body.get("stream") and response.status_code == 200:
        assert response.headers["content-type"].startswith("text/event-stream")
    else:
        assert response.headers["content-type"] == "application/json"
        assert "\n" not in response.text
    assert "\r" not in response.text
    return response.status_code, _CREATED.sub('"created":1', response.text)


def over(script: Script, **facts: Any) -> FakeModels:
    return FakeModels(FakeClient(script=script, facts=fake_facts(**facts)))


def chunk(content: str, finish: str = "null", *, index: int = 0, tokens: str = "null", more: str = "") -> str:
    return (
        'data: {"id":"5","object":"chat.completion.chunk","created":1,"model":"fake","choices":'
        f'[{{"index":{index},"delta":{{"role":"assistant","content":{json.dumps(content)},"reasoning_content":null,'
        f'"gen_tokens":{tokens},"tool_calls":[]}},"logprobs":null,"finish_reason":{finish}}}],"usage":null{more}}}\n\n'
    )


def text_chunk(text: str, finish: str = "null", *, index: int = 0, session: str = "-1") -> str:
    return (
        f'data: {{"id":"{session}","object":"text_completion","created":1,"model":"fake","choices":'
        f'[{{"index":{index},"text":{json.dumps(text)},"logprobs":null,"gen_tokens":null,"finish_reason":{finish}}}],'
        '"usage":null}\n\n'
    )


async def test_chat_whole() -> None:
    assert await post("/v1/chat/completions", CHAT) == (
        200,
        '{"id":"5","object":"chat.completion","created":1,"model":"fake","choices":[{"index":0,"message":{"role":'
        '"assistant","content":"Hello.","gen_tokens":null,"reasoning_content":null,"tool_calls":null},"logprobs":null,'
        '"finish_reason":"stop"}],"usage":{"prompt_tokens":52,"total_tokens":58,"completion_tokens":6'
        ',"prompt_tokens_details":{"cached_tokens":0}}}',
    )


async def test_chat_stream() -> None:
    _, text = await post("/v1/chat/completions", CHAT | {"stream": True})
    assert text == chunk("Hel") + chunk("lo.") + chunk("", '"stop"') + DONE


async def test_chat_stream_with_usage_and_ids() -> None:
    body = CHAT | {"stream": True, "stream_options": {"include_usage": True}, "return_token_ids": True}
    _, text = await post("/v1/chat/completions", body, over(saying("a", reason="length")))
    assert text == (
        chunk("a", tokens="[97]")
        + chunk("", '"length"', tokens="[]")
        + 'data: {"id":"5","object":"chat.completion.chunk","created":1,"model":"fake","choices":[],"usage":'
        '{"prompt_tokens":52,"total_tokens":53,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":0}}}\n\n'
        + DONE
    )


async def test_the_id_of_a_chat_is_that_of_its_session() -> None:
    async with http_client(fresh=True) as client:
        ids = [
            (await client.post("/lmdeploy/v1/chat/completions", json=CHAT | {"session_id": asked})).json()[
                "id"
            ]
            for asked in (-1, None, 9, 0)
        ]
    assert ids[2] == "9"
    assert len(set(ids)) == 4
    assert all(int(drawn) > 9 for drawn in (ids[0], ids[1], ids[3]))


async def test_completion_whole_and_streamed() -> None:
    assert await post("/v1/completions", TEXT) == (
        200,
        '{"id":"-1","object":"text_completion","created":1,"model":"fake","choices":[{"index":0,"text":"Hello.",'
        '"logprobs":null,"gen_tokens":null,"finish_reason":"stop"}],'
        '"usage":{"prompt_tokens":2,"total_tokens":8,"completion_tokens":6,"prompt_tokens_details":{"cached_tokens":0}}}',
    )
    _, text = await post("/v1/completions", TEXT | {"stream": True, "session_id": 4})
    assert text == (
        text_chunk("Hel", session="4")
        + text_chunk("lo.", session="4")
        + text_chunk("", '"stop"', session="4")
        + DONE
    )


async def test_prompts_keep_their_indices() -> None:
    _, text = await post("/v1/completions", TEXT | {"prompt": ["a", "b"]}, over(saying("x")))
    body = json.loads(text)
    assert [(choice["index"], choice["text"]) for choice in body["choices"]] == [(0, "x"), (1, "x")]
    details = {"prompt_tokens_details": {"cached_tokens": 0}}
    assert body["usage"] == {"prompt_tokens": 2, "total_tokens": 4, "completion_tokens": 2, **details}
    _, stream = await post(
        "/v1/completions", TEXT | {"prompt": ["a", "b"], "stream": True}, over(saying("x"))
    )
    events = [json.loads(line[6:]) for line in stream.split("\n\n") if line.startswith("data: {")]
    assert {event["choices"][0]["index"] for event in events} == {0, 1}


def generated(text: str, ids: str, count: int, finish: str = "null", logprobs: str = "null") -> str:
    return (
        f'{{"text":{json.dumps(text)},"output_ids":{ids},"meta_info":{{"prompt_tokens":2,"completion_tokens":{count},'
        f'"finish_reason":{finish},"output_token_logprobs":{logprobs},"routed_experts":null}}}}'
    )


async def test_generate_whole() -> None:
    _, text = await post("/generate", {"prompt": "ab"}, over(saying("Hi", reason="length")))
    assert text == generated("Hi", "[72,105]", 2, '{"type":"length"}')


async def test_generate_stream_with_logprobs() -> None:
    body = {"input_ids": [97, 98], "return_logprob": True, "stream": True}
    _, text = await post("/generate", body, over(saying("H", "i")))
    events = (
        generated("H", "[72]", 1, logprobs="[[-0.5,72]]"),
        generated("i", "[105]", 2, logprobs="[[-0.5,105]]"),
        generated("", "[]", 2, '{"type":"stop"}'),
    )
    assert text == "".join(f"data: {event}\n\n" for event in events) + DONE


END = TokenInfo(257, b"</s>", True, -0.25)


@pytest.mark.parametrize("included", [False, True])
async def test_the_token_that_ends_the_text_counts_where_it_is_included(included: bool) -> None:
    script = saying("Hi", end_token=END)
    fields = {"include_stop_str_in_output": included, "return_logprob": True}
    _, text = await post("/generate", {"prompt": "ab"} | fields, over(script))
    body = json.loads(text)
    assert body["text"] == ("Hi</s>" if included else "Hi")
    assert body["output_ids"] == ([72, 105, 257] if included else [72, 105])
    meta = body["meta_info"]
    assert meta["completion_tokens"] == len(body["output_ids"])
    assert [pair[1] for pair in meta["output_token_logprobs"]] == body["output_ids"]
    _, stream = await post("/generate", {"prompt": "ab", "stream": True} | fields, over(script))
    events = [json.loads(line[6:]) for line in stream.split("\n\n") if line.startswith("data: {")]
    assert "".join(event["text"] for event in events) == body["text"]
    assert [token for event in events for token in event["output_ids"]] == body["output_ids"]
    _, chat = await post(
        "/v1/chat/completions", CHAT | {"include_stop_str_in_output": included}, over(script)
    )
    assert json.loads(chat)["choices"][0]["message"]["content"] == body["text"]


async def scored(request: EngineRequest) -> AsyncIterator[EngineEvent]:
    """A token that is among its candidates, and one that is not."""
    yield Accepted(request.id, 1)
    entries = iter(("x", "!", "Ġy", "Ã©") if request.vocabulary_entries else ("",) * 4)
    best = (
        TokenLogprob(7, b"x", -0.25, entry=next(entries)),
        TokenLogprob(9, b"!", -0.75, entry=next(entries)),
        TokenLogprob(8, b" y", -1.0, entry=next(entries)),
    )
    top = best[: request.logprobs or 0]
    yield Chunk(0, "x", (TokenInfo(7, b"x", False, -0.25, top, best[0].entry),), id=request.id)
    yield Chunk(0, "é", (TokenInfo(4, "é".encode(), False, -2.0, top, next(entries)),), id=request.id)
    for event in endings(request, 2):
        yield event


async def test_chat_logprobs_spell_tokens_as_the_vocabulary_and_leave_the_chosen_one_out_of_its_list() -> (
    None
):
    _, text = await post("/v1/chat/completions", CHAT | {"logprobs": True, "top_logprobs": 2}, over(scored))
    content = json.loads(text)["choices"][0]["logprobs"]["content"]
    assert content == [
        {
            "token": "x", "bytes": [120], "logprob": -0.25,
            "top_logprobs": [
                {"token": "!", "bytes": [33], "logprob": -0.75},
                {"token": "Ġy", "bytes": [196, 160, 121], "logprob": -1.0},
            ],
        },
        {
            "token": "Ã©", "bytes": [195, 131, 194, 169], "logprob": -2.0,
            "top_logprobs": [
                {"token": "x", "bytes": [120], "logprob": -0.25}, {"token": "!", "bytes": [33], "logprob": -0.75},
            ],
        },
    ]  # fmt: skip


async def split(request: EngineRequest) -> AsyncIterator[EngineEvent]:
    """A character in two tokens, and its other candidates."""
    yield Accepted(request.id, 1)
    other = (TokenLogprob(3, b"\xa8", -0.5), TokenLogprob(4, b"\xa9", -1.0))
    yield Chunk(
        0, "", (TokenInfo(2, b"\xc3", False, -0.25, (TokenLogprob(2, b"\xc3", -0.25),)),), id=request.id
    )
    yield Chunk(
        0, "é!", (TokenInfo(4, b"\xa9", False, -1.0, other), TokenInfo(5, b"!", False, -0.1)), id=request.id
    )
    for event in endings(request, 3):
        yield event


async def test_completion_tokens_are_what_they_add_to_the_text() -> None:
    _, text = await post("/v1/completions", TEXT | {"logprobs": 2}, over(split))
    choice = json.loads(text)["choices"][0]
    assert choice["logprobs"] == {
        "text_offset": [0, 0, 1],
        "token_logprobs": [-0.25, -1.0, -0.1],
        "tokens": ["", "é", "!"],
        "top_logprobs": [{"": -0.25}, {"è": -0.5, "é": -1.0}, {"!": -0.1}],
    }
    assert "".join(choice["logprobs"]["tokens"]) == choice["text"]


async def test_completion_logprobs_count_from_the_generated_text() -> None:
    _, text = await post("/v1/completions", TEXT | {"logprobs": 1}, over(scored))
    assert json.loads(text)["choices"][0]["logprobs"] == {
        "text_offset": [0, 1],
        "token_logprobs": [-0.25, -2.0],
        "tokens": ["x", "é"],
        "top_logprobs": [{"x": -0.25}, {"x": -0.25, "é": -2.0}],
    }
    _, stream = await post("/v1/completions", TEXT | {"logprobs": 1, "stream": True}, over(scored))
    parts = [
        json.loads(line[6:])["choices"][0] for line in stream.split("\n\n") if line.startswith("data: {")
    ]
    assert [part["logprobs"]["text_offset"] for part in parts if part["logprobs"]] == [[0], [1]]


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
HERMES = (
    "{% if tools %}<tool_call>{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}<think></think>"
)


def with_tools(*pieces: str) -> FakeModels:
    return over(saying(*pieces), chat_templates={"default": HERMES})


async def test_calls_and_thoughts() -> None:
    models = with_tools("<think>hm</think>Yes.\n", CALL)
    _, text = await post("/v1/chat/completions", CHAT | {"tools": [TOOL]}, models)
    choice = json.loads(text)["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    message = choice["message"]
    assert (message["content"], message["reasoning_content"]) == ("Yes.", "hm")
    [call] = message["tool_calls"]
    assert call.keys() == {"id", "type", "function"}
    assert call["function"] == {"name": "f", "arguments": '{"a": 1}'}


async def test_calls_and_thoughts_in_a_stream() -> None:
    models = with_tools("<think>hm</think>Yes.\n", CALL)
    _, stream = await post("/v1/chat/completions", CHAT | {"tools": [TOOL], "stream": True}, models)
    choices = [
        json.loads(line[6:])["choices"][0] for line in stream.split("\n\n") if line.startswith("data: {")
    ]
    deltas = [choice["delta"] for choice in choices]
    assert "".join(delta["reasoning_content"] or "" for delta in deltas) == "hm"
    assert "".join(delta["content"] for delta in deltas) == "Yes."
    parts = [part for delta in deltas for part in delta["tool_calls"]]
    assert parts[0]["id"] and parts[0]["function"]["name"] == "f"
    assert all(part["function"]["name"] is None for part in parts[1:])
    assert "".join(part["function"]["arguments"] for part in parts) == '{"a": 1}'
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["tool_calls"]


async def test_thoughts_stay_in_the_text_where_thinking_is_off() -> None:
    body = CHAT | {"enable_thinking": False}
    _, text = await post("/v1/chat/completions", body, with_tools("<think>hm</think>Yes."))
    message = json.loads(text)["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("<think>hm</think>Yes.", None)


def flat(message: str, kind: str, status: int) -> dict[str, Any]:
    return {"message": message, "type": kind, "code": status, "param": None, "object": "error"}


ERRORS: dict[str, tuple[Exception, dict[str, Any]]] = {
    "length": (
        ContextLengthExceeded(600, 512),
        flat(
            f"Input length (600) must be smaller than the model context length (512). {LONGER_CONTEXT}",
            "invalid_request_error",
            400,
        ),
    ),
    "one of several": (
        ContextLengthExceeded(600, 512, param="input", item=3),
        flat(
            "input: item 3: Input length (600) must be smaller than the model context length (512).",
            "invalid_request_error",
            400,
        ),
    ),
    "queue": (Overloaded("full", retry_after=2), flat("full", "invalid_request_error", 429)),
    "model": (ModelFailed("gone"), flat("gone", "server_error", 503)),
    "crash": (EngineCrashed("gone"), flat("gone", "server_error", 503)),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("case", ERRORS)
async def test_before_the_first_event_an_error_is_flat_and_has_its_status(case: str, stream: bool) -> None:
    error, wanted = ERRORS[case]
    for path, body in (
        ("/v1/chat/completions", CHAT),
        ("/v1/completions", TEXT),
        ("/generate", {"prompt": "a"}),
    ):
        status, text = await post(path, body | {"stream": stream}, over(failing(error)))
        assert (status, json.loads(text)) == (wanted["code"], wanted)


async def test_inside_of_a_stream_it_is_the_last_event_but_one() -> None:
    models = over(failing(EngineCrashed("gone"), "a"))
    _, text = await post("/generate", {"prompt": "ab", "stream": True}, models)
    error = json.dumps({"error": flat("gone", "server_error", 503)}, separators=(",", ":"))
    assert text == f"data: {generated('a', '[97]', 1)}\n\n" + f"data: {error}\n\n" + DONE


async def test_a_foreign_exception_reveals_nothing() -> None:
    status, text = await post("/generate", {"prompt": "ab"}, over(failing(RuntimeError("/home/x"))))
    assert (status, json.loads(text)["type"]) == (500, "server_error")
    assert "/home" not in text


async def test_unknown_models_are_refused() -> None:
    for path, body in (("/v1/chat/completions", CHAT), ("/v1/completions", TEXT), ("/v1/embeddings", TEXT)):
        status, text = await post(path, body | {"model": "it's", "input": "a"})
        assert (status, json.loads(text)) == (
            404,
            flat('The model "it\'s" does not exist.', "invalid_request_error", 404),
        )


async def test_a_request_that_breaks_the_schema_has_fastapis_list_beside_the_flat_body() -> None:
    status, text = await post("/v1/chat/completions", {"messages": "a", "top_k": "x"})
    body = json.loads(text)
    assert (status, body["code"], body["object"]) == (422, 422, "error")
    assert sorted(detail["loc"] for detail in body["detail"]) == [["body", "model"], ["body", "top_k"]]


async def test_keys() -> None:
    async with http_client(api_keys=("s3cret",)) as client:
        refused = await client.post("/lmdeploy/generate", json={"prompt": "a"})
        assert (refused.status_code, refused.json()) == (
            401,
            {
                "detail": {
                    "error": {
                        "message": "Please request with valid api key!",
                        "type": "invalid_request_error",
                        "param": None,
                        "code": "invalid_api_key",
                    }
                }
            },
        )
        headers = {"authorization": "Bearer s3cret"}
        assert (
            await client.post("/lmdeploy/generate", json={"prompt": "a"}, headers=headers)
        ).status_code == 200


async def test_no_comment_stands_in_a_stream() -> None:
    async def slow(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        yield Accepted(request.id, 1)
        await asyncio.sleep(0.05)
        for event in endings(request, 0):
            yield event

    bodies: list[str] = []
    async with http_client(over(slow), sse_ping_s=0.001) as client:
        for path in ("/lmdeploy/v1/completions", "/v1/completions"):
            bodies.append((await client.post(path, json=TEXT | {"stream": True})).text)
    ours, others = bodies
    assert all(line.startswith("data: ") for line in ours.split("\n") if line)
    assert ": ping" in others
