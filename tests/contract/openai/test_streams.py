"""Jan's streams and bodies byte for byte. Marks replace ids and times, which differ between calls."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from jan_serve import __version__
from jan_serve.core.events import TokenInfo, TokenLogprob
from jan_serve.errors import (
    ContextLengthExceeded,
    EngineCrashed,
    InvalidGrammar,
    JanServeError,
    ModelFailed,
    Overloaded,
)
from jan_serve.ipc.messages import Accepted, Chunk, EngineEvent, EngineRequest
from tests.support.engine.fake_client import (
    FakeClient,
    FakeModels,
    Script,
    endings,
    failing,
    fake_facts,
    saying,
)
from tests.support.servers.fronts import http_client

FINGERPRINT = f'"system_fingerprint":"jan-serve {__version__}",'

pytestmark = pytest.mark.anyio

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}

_ID = re.compile(rb'"id":"(chatcmpl|cmpl)-[\w-]{16,36}"')
_EVENT_ID = re.compile(rb"^id: [\w-]{16}:\d+\n", re.MULTILINE)
_CREATED = re.compile(rb'"created":\d{10}')


async def post(path: str, body: dict[str, Any], models: FakeModels | None = None) -> tuple[int, str]:
    """Status, and the body with one id and time for all."""
    async with http_client(models) as client:
        response = await client.post(path, json=body)
    if body.get("stream") and response.status_code == 200:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store"
    else:
        assert response.headers["content-type"] == "application/json"
    content = _EVENT_ID.sub(b"", response.content)
    assert len(set(_ID.findall(content))) <= 1
    content = _CREATED.sub(b'"created":1', _ID.sub(rb'"id":"\1-X"', content))
    assert b"\r" not in content
    return response.status_code, content.decode()


def over(script: Script) -> FakeModels:
    return FakeModels(FakeClient(script=script))


def chunk(delta: str, finish: str = "null", index: int = 0, more: str = "", logprobs: str = "null") -> str:
    return (
        'data: {"id":"chatcmpl-X","model":"m","created":1,"object":"chat.completion.chunk",'
        f"{FINGERPRINT}"
        '"choices":'
        f'[{{"index":{index},"delta":{delta},"logprobs":{logprobs},"finish_reason":{finish}}}]{more}}}\n\n'
    )


def text_chunk(text: str, finish: str = "null", index: int = 0, more: str = "") -> str:
    return (
        'data: {"id":"cmpl-X","object":"text_completion","created":1,"model":"m",'
        f"{FINGERPRINT}"
        '"choices":'
        f'[{{"text":{json.dumps(text)},"index":{index},"logprobs":null,"finish_reason":{finish}}}]{more}}}\n\n'
    )


DONE = "data: [DONE]\n\n"
DETAILS = ',"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}'


def timings(predicted: int, each_ms: float, rate: float) -> str:
    """Timings of a chat in which 52 tokens were computed in 0.2 s, and `predicted` in 0.3 s."""
    return (
        '"timings":{"cache_n":0,"prompt_n":52,"prompt_ms":200.0,"prompt_per_token_ms":3.8461538461538463,'
        f'"prompt_per_second":260.0,"predicted_n":{predicted},"predicted_ms":300.0,'
        f'"predicted_per_token_ms":{each_ms},"predicted_per_second":{rate}}}'
    )


async def test_chat_whole() -> None:
    assert await post("/v1/chat/completions", CHAT) == (
        200,
        '{"id":"chatcmpl-X","object":"chat.completion","created":1,"model":"m",'
        f"{FINGERPRINT}"
        '"choices":[{"index":0,"message":'
        '{"role":"assistant","content":"Hello."},"logprobs":null,"finish_reason":"stop"}],'
        f'"usage":{{"prompt_tokens":52,"completion_tokens":6,"total_tokens":58{DETAILS}}},{timings(6, 50.0, 20.0)}}}',
    )


async def test_chat_stream() -> None:
    status, body = await post("/v1/chat/completions", CHAT | {"stream": True})
    assert status == 200
    assert body == (
        chunk('{"role":"assistant","content":""}')
        + chunk('{"content":"Hel"}')
        + chunk('{"content":"lo."}')
        + chunk("{}", '"stop"')
        + DONE
    )


async def test_chat_stream_with_usage() -> None:
    body = CHAT | {"stream": True, "stream_options": {"include_usage": True}}
    more = ',"usage":null'
    _, text = await post("/v1/chat/completions", body, over(saying("a", reason="length")))
    assert text == (
        chunk('{"role":"assistant","content":""}', more=more)
        + chunk('{"content":"a"}', more=more)
        + chunk("{}", '"length"', more=more)
        + 'data: {"id":"chatcmpl-X","model":"m","created":1,"object":"chat.completion.chunk",'
        f"{FINGERPRINT}"
        '"choices":[],"usage":'
        f'{{"prompt_tokens":52,"completion_tokens":1,"total_tokens":53{DETAILS}}},'
        f"{timings(1, 300.0, 3.3333333333333335)}}}\n\n" + DONE
    )


async def test_chat_choices_are_streamed_side_by_side() -> None:
    _, text = await post("/v1/chat/completions", CHAT | {"stream": True, "n": 2}, over(saying("a")))
    assert text == (
        chunk('{"role":"assistant","content":""}')
        + chunk('{"role":"assistant","content":""}', index=1)
        + chunk('{"content":"a"}')
        + chunk('{"content":"a"}', index=1)
        + chunk("{}", '"stop"')
        + chunk("{}", '"stop"', index=1)
        + DONE
    )


async def scored(request: EngineRequest) -> AsyncIterator[EngineEvent]:
    """A character in two tokens, and a token that is not among its candidates."""
    assert request.logprobs == 1
    yield Accepted(request.id, 1)
    emoji = "é".encode()
    best = (TokenLogprob(1, b"x", -0.25),)
    halves = (
        TokenInfo(7, emoji[:1], False, -1.0, best),
        TokenInfo(8, emoji[1:], False, -0.5, (TokenLogprob(8, emoji[1:], -0.5),)),
    )
    yield Chunk(0, "é", halves, id=request.id)
    yield Chunk(0, "!", (TokenInfo(9, b"!", False, -2.0, best),), id=request.id)
    for event in endings(request, 3):
        yield event


async def test_chat_logprobs_hold_the_bytes_of_every_token() -> None:
    body = CHAT | {"logprobs": True, "top_logprobs": 1}
    _, text = await post("/v1/chat/completions", body, over(scored))
    logprobs = json.loads(text)["choices"][0]["logprobs"]
    assert logprobs["refusal"] is None
    assert bytes(byte for entry in logprobs["content"] for byte in entry["bytes"]).decode() == "é!"
    assert logprobs["content"][0] == {
        "token": "\ufffd", "logprob": -1.0, "bytes": [0xC3],
        "top_logprobs": [
            {"token": "x", "logprob": -0.25, "bytes": [ord("x")]},
            {"token": "\ufffd", "logprob": -1.0, "bytes": [0xC3]},
        ],
    }  # fmt: skip
    assert len(logprobs["content"][1]["top_logprobs"]) == 1


async def test_streamed_logprobs_are_those_of_the_whole_answer() -> None:
    body = CHAT | {"logprobs": True, "top_logprobs": 1}
    _, whole = await post("/v1/chat/completions", body, over(scored))
    _, stream = await post("/v1/chat/completions", body | {"stream": True}, over(scored))
    chunks = [
        json.loads(line[6:])["choices"][0] for line in stream.split("\n\n") if line.startswith("data: {")
    ]
    joined = [entry for part in chunks if part["logprobs"] for entry in part["logprobs"]["content"]]
    assert joined == json.loads(whole)["choices"][0]["logprobs"]["content"]


async def test_completion_whole() -> None:
    assert await post("/v1/completions", {"model": "m", "prompt": "ab"}) == (
        200,
        '{"id":"cmpl-X","object":"text_completion","created":1,"model":"m",'
        f"{FINGERPRINT}"
        '"choices":[{"text":"Hello.","index":0,'
        '"logprobs":null,"finish_reason":"stop"}],"usage":'
        f'{{"prompt_tokens":2,"completion_tokens":6,"total_tokens":8{DETAILS}}}}}',
    )


async def test_completion_stream() -> None:
    _, text = await post("/v1/completions", {"model": "m", "prompt": "ab", "stream": True})
    assert text == text_chunk("Hel") + text_chunk("lo.") + text_chunk("", '"stop"') + DONE


async def test_completion_stream_with_usage_and_echo() -> None:
    body = {
        "model": "m",
        "prompt": "ab",
        "stream": True,
        "echo": True,
        "stream_options": {"include_usage": True},
    }
    _, text = await post("/v1/completions", body, over(saying("c", reason="length")))
    more = ',"usage":null'
    assert text == (
        text_chunk("ab", more=more)
        + text_chunk("c", more=more)
        + text_chunk("", '"length"', more=more)
        + 'data: {"id":"cmpl-X","object":"text_completion","created":1,"model":"m",'
        f"{FINGERPRINT}"
        '"choices":[],"usage":'
        f'{{"prompt_tokens":2,"completion_tokens":1,"total_tokens":3{DETAILS}}}}}\n\n' + DONE
    )


async def test_prompts_become_choices() -> None:
    async def echo(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        [text] = request.prompt
        async for event in saying(f"<{text}>")(request):
            yield event

    body = {"prompt": ["a", "b"], "n": 2, "echo": True}
    _, text = await post("/v1/completions", body, over(echo))
    choices = json.loads(text)["choices"]
    assert [(choice["index"], choice["text"]) for choice in choices] == [
        (0, "a<a>"), (1, "a<a>"), (2, "b<b>"), (3, "b<b>"),
    ]  # fmt: skip
    usage = json.loads(text)["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (2, 12, 14)


@pytest.mark.parametrize("prompt", ["aé", list("aé".encode())], ids=["text", "tokens"])
async def test_completion_logprobs_count_characters_of_the_whole_text(prompt: Any) -> None:
    body = {"prompt": prompt, "logprobs": 1, "max_tokens": 2}
    _, plain = await post("/v1/completions", body, over(saying("éb")))
    logprobs = json.loads(plain)["choices"][0]["logprobs"]
    assert logprobs == {
        "tokens": ["bytes:\\xc3", "bytes:\\xa9", "b"],
        "text_offset": [2, 2, 3],
        "token_logprobs": [-0.5] * 3,
        "top_logprobs": [{"bytes:\\xc3": -0.5}, {"bytes:\\xa9": -0.5}, {"b": -0.5}],
    }
    _, echoed = await post("/v1/completions", body | {"echo": True}, over(saying("éb")))
    choice = json.loads(echoed)["choices"][0]
    assert choice["text"] == "aééb"
    assert choice["logprobs"]["text_offset"] == [0, 1, 1, 2, 2, 3]
    assert choice["logprobs"]["token_logprobs"] == [None, *[-0.5] * 5]
    assert choice["logprobs"]["top_logprobs"][0] is None


async def computing(request: EngineRequest) -> AsyncIterator[EngineEvent]:
    """As the worker: no tokens where none are wanted."""
    wanted = request.stopping.max_tokens
    async for event in saying(*"xy"[:wanted], reason="length", eos=False)(request):
        yield event


SCORED = {
    "tokens": ["a", "b"],
    "text_offset": [0, 1],
    "token_logprobs": [None, -0.5],
    "top_logprobs": [None, {"b": -0.5}],
}


@pytest.mark.parametrize("prompt", [["ab", "ab"], [list(b"ab"), list(b"ab")]], ids=["texts", "tokens"])
async def test_prompts_are_scored_without_an_answer(prompt: Any) -> None:
    body = {"prompt": prompt, "echo": True, "max_tokens": 0, "logprobs": 1}
    _, text = await post("/v1/completions", body, over(computing))
    answer = json.loads(text)
    assert answer["choices"] == [
        {"text": "ab", "index": index, "logprobs": SCORED, "finish_reason": "length"} for index in range(2)
    ]
    assert answer["usage"]["completion_tokens"] == 0


async def test_a_scored_prompt_is_streamed() -> None:
    body = {"prompt": "ab", "echo": True, "max_tokens": 0, "logprobs": 1, "stream": True}
    _, text = await post("/v1/completions", body, over(computing))
    events = [json.loads(line[6:])["choices"][0] for line in text.split("\n\n")[:-2]]
    assert events == [
        {"text": "ab", "index": 0, "logprobs": SCORED, "finish_reason": None},
        {"text": "", "index": 0, "logprobs": None, "finish_reason": "length"},
    ]


async def test_without_echo_no_tokens_are_no_limit() -> None:
    _, text = await post("/v1/completions", {"prompt": "ab", "max_tokens": 0}, over(computing))
    assert json.loads(text)["choices"][0]["text"] == "xy"


@pytest.mark.parametrize(("echo", "tokens"), [(True, ["a", "b", "<end>"]), (False, [])])
async def test_what_ends_an_answer_stands_behind_a_scored_prompt(echo: bool, tokens: list[str]) -> None:
    """lm-evaluation-harness asks for one token and drops the last entry, which must not be of the prompt."""
    end = TokenInfo(0, b"<end>", True, -0.25)
    body = {"prompt": "ab", "echo": echo, "max_tokens": 1, "logprobs": 1}
    _, text = await post("/v1/completions", body, over(saying(end_token=end)))
    choice = json.loads(text)["choices"][0]
    assert choice["logprobs"]["tokens"] == tokens
    assert choice["text"] == ("ab" if echo else "")
    assert choice["finish_reason"] == "stop"


async def test_a_suffix_is_appended_only_where_the_model_did_not_get_it() -> None:
    body = {"prompt": "a", "suffix": "z", "model": "m"}
    _, text = await post("/v1/completions", body, over(saying("b")))
    assert json.loads(text)["choices"][0]["text"] == "bz"
    _, stream = await post("/v1/completions", body | {"stream": True}, over(saying("b")))
    assert stream == text_chunk("b") + text_chunk("z") + text_chunk("", '"stop"') + DONE
    tokens = {role: fake_facts().special_tokens["bos"] for role in ("fim_pre", "fim_suf", "fim_mid")}
    infilling = FakeModels(FakeClient(facts=fake_facts(special_tokens=tokens), script=saying("b")))
    _, text = await post("/v1/completions", body, infilling)
    assert json.loads(text)["choices"][0]["text"] == "b"


@pytest.mark.parametrize(
    ("sent", "echoed"), [("gpt-4o", "gpt-4o"), ("fake", "fake"), (None, "fake"), ("", "fake")]
)
async def test_the_name_that_was_sent_comes_back(sent: str | None, echoed: str) -> None:
    _, text = await post("/v1/chat/completions", CHAT | {"model": sent})
    assert json.loads(text)["model"] == echoed


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ContextLengthExceeded(600, 512, max_tokens=7), 400, "context_length_exceeded"),
        (InvalidGrammar("what", 2), 400, "invalid_grammar"),
        (Overloaded("full", retry_after=2), 429, "overloaded"),
        (ModelFailed("gone"), 503, "model_failed"),
        (EngineCrashed("gone"), 503, "engine_crashed"),
        (RuntimeError("/home/x 0x7f"), 500, "internal_error"),
    ],
)
async def test_before_the_first_event_an_error_has_its_status(
    error: Exception, status: int, code: str, stream: bool
) -> None:
    for path, body in (("/v1/chat/completions", CHAT), ("/v1/completions", {"prompt": "a"})):
        got, text = await post(path, body | {"stream": stream}, over(failing(error)))
        assert (got, json.loads(text)["error"]["code"]) == (status, code)
        assert "/home" not in text


@pytest.mark.parametrize("error", [EngineCrashed("gone"), RuntimeError("/home/x 0x7f")])
@pytest.mark.parametrize("after", [0, 2])
async def test_after_it_the_stream_ends_with_one_error_event(error: Exception, after: int) -> None:
    status, text = await post(
        "/v1/chat/completions", CHAT | {"stream": True}, over(failing(error, *["a"] * after, accepted=True))
    )
    assert status == 200
    head = chunk('{"role":"assistant","content":""}') + chunk('{"content":"a"}') * after
    assert text.startswith(head)
    code = error.code if isinstance(error, JanServeError) else "internal_error"
    [event] = text.removeprefix(head).split("\n\n")[:-1]
    detail = json.loads(event.removeprefix("data: "))["error"]
    assert detail.keys() == {"message", "type", "param", "code"}
    assert detail["code"] == code
    assert "/home" not in text


async def test_the_words_of_a_prompt_that_is_too_long() -> None:
    error = ContextLengthExceeded(600, 512, max_tokens=7, param="messages")
    _, text = await post("/v1/chat/completions", CHAT, over(failing(error)))
    assert json.loads(text)["error"] == {
        "message": "This model's maximum context length is 512 tokens. However, you requested 607 tokens (600 in the"
        " messages, 7 in the completion). Please reduce the length of the messages or completion. "
        f"{error.remedy}",
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }
    error = ContextLengthExceeded(600, 512, max_tokens=7, param="prompt")
    _, text = await post("/v1/completions", {"prompt": "a"}, over(failing(error)))
    assert json.loads(text)["error"] == {
        "message": "This model's maximum context length is 512 tokens, however you requested 607 tokens (600 in your"
        " prompt; 7 for the completion). Please reduce your prompt; or completion length."
        f" {error.remedy}",
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }


TEXT = 'é模😀 "quoted"\n\u2028\0 <|im_end|>'


@pytest.mark.parametrize("cut", range(1, len(TEXT)))
async def test_joined_deltas_are_the_whole_text_at_every_cut(cut: int) -> None:
    _, stream = await post(
        "/v1/chat/completions", CHAT | {"stream": True}, over(saying(TEXT[:cut], TEXT[cut:]))
    )
    assert len(stream.splitlines()) == stream.count("\n")
    deltas = [
        json.loads(line[6:])["choices"][0]["delta"].get("content", "")
        for line in stream.split("\n\n")
        if line.startswith("data: {")
    ]
    assert "".join(deltas) == TEXT


async def test_images_are_refused_without_being_opened() -> None:
    for url in (
        "http://127.0.0.1:9/x.png",
        "file:///etc/passwd",
        "/etc/passwd",
        "data:image/png;base64,AAAA",
    ):
        content = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": url}}]
        for stream in (False, True):
            body = {"messages": [{"role": "user", "content": content}], "stream": stream}
            status, text = await post("/v1/chat/completions", body)
            assert (status, json.loads(text)["error"]["code"]) == (400, "unsupported_content")
