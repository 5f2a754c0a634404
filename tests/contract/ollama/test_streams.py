"""Ollama's streams and bodies byte for byte. Marks replace times, which differ between calls."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from jan_serve.core.events import TokenInfo, TokenLogprob
from jan_serve.errors import (
    LONGER_CONTEXT,
    ContextLengthExceeded,
    EngineCrashed,
    InsufficientMemory,
    ModelFailed,
    Overloaded,
)
from jan_serve.ipc.messages import Accepted, Chunk, EngineEvent, EngineRequest
from tests.contract.ollama.support import CHAT, HERMES, TEXT, TOOL, call, error, lines, model, thinking_model
from tests.support.engine.fake_client import endings, failing, saying

pytestmark = pytest.mark.anyio

COUNTERS = (
    '"total_duration":1,"load_duration":1,"prompt_eval_count":%d,"prompt_eval_duration":200000000,"eval_count":%d,'
    '"eval_duration":300000000'
)
CHAT_PROMPT = 52


def chat_line(content: str, more: str = "") -> str:
    return (
        f'{{"model":"m","created_at":"T","message":{{"role":"assistant","content":{json.dumps(content)}{more}}},'
        '"done":false}\n'
    )


def chat_end(tokens: int, reason: str = "stop", prompt: int = CHAT_PROMPT) -> str:
    return (
        '{"model":"m","created_at":"T","message":{"role":"assistant","content":""},"done":true,'
        f'"done_reason":"{reason}",{COUNTERS % (prompt, tokens)}}}\n'
    )


def text_line(text: str, more: str = "") -> str:
    return f'{{"model":"m","created_at":"T","response":{json.dumps(text)}{more},"done":false}}\n'


async def test_a_chat_is_streamed_unless_the_request_says_otherwise() -> None:
    expected = chat_line("Hel") + chat_line("lo.") + chat_end(6)
    for body in (CHAT, CHAT | {"stream": True}, CHAT | {"stream": None}):
        assert await call("/api/chat", body) == (200, expected)


async def test_chat_whole() -> None:
    assert await call("/api/chat", CHAT | {"stream": False}) == (
        200,
        '{"model":"m","created_at":"T","message":{"role":"assistant","content":"Hello."},"done":true,'
        f'"done_reason":"stop",{COUNTERS % (CHAT_PROMPT, 6)}}}',
    )


async def test_text_stream_and_whole() -> None:
    end = f'"done":true,"done_reason":"length",{COUNTERS % (CHAT_PROMPT, 1)}}}'
    models = model(saying("a", reason="length"))
    assert await call("/api/generate", TEXT, models) == (
        200,
        text_line("a") + '{"model":"m","created_at":"T","response":"",' + end + "\n",
    )
    whole = await call("/api/generate", TEXT | {"stream": False}, models)
    assert whole == (200, '{"model":"m","created_at":"T","response":"a",' + end)


async def test_thoughts_are_beside_the_content() -> None:
    models = thinking_model(saying("<think>", "Hm", "</think>", "\n\n", "Yes."))
    _, text = await call("/api/chat", CHAT, models)
    assert text == chat_line("", ',"thinking":"Hm"') + chat_line("Yes.") + chat_end(23)
    _, text = await call("/api/generate", TEXT, models)
    assert text.startswith(text_line("", ',"thinking":"Hm"') + text_line("Yes."))
    _, whole = await call("/api/chat", CHAT | {"stream": False}, models)
    assert '"message":{"role":"assistant","content":"Yes.","thinking":"Hm"}' in whole
    _, whole = await call("/api/generate", TEXT | {"stream": False}, models)
    assert '"response":"Yes.","thinking":"Hm","done":true' in whole


CALLS = (
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo", "at": [1]}}\n</tool_call>\n'
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Bergen"}}\n</tool_call>'
)


def without_ids(calls: list[Any]) -> list[Any]:
    assert all(call.pop("id") for call in calls)
    return calls


EXPECTED_CALLS = [
    {"function": {"index": 0, "name": "weather", "arguments": {"city": "Oslo", "at": [1]}}},
    {"function": {"index": 1, "name": "weather", "arguments": {"city": "Bergen"}}},
]


@pytest.mark.parametrize("cut", range(0, len(CALLS), 3))
async def test_each_call_is_one_line_with_an_object_at_every_cut(cut: int) -> None:
    models = model(saying(CALLS[:cut], CALLS[cut:]), HERMES)
    answer = await lines("/api/chat", CHAT | {"tools": [TOOL]}, models)
    calls = [line["message"]["tool_calls"] for line in answer if "tool_calls" in line["message"]]
    assert without_ids([call for line in calls for call in line]) == EXPECTED_CALLS
    assert [len(line) for line in calls] == [1, 1]
    assert {line["message"]["content"].strip() for line in answer} == {""}
    assert (answer[-1]["done"], answer[-1]["done_reason"]) == (True, "stop")


async def test_calls_of_a_whole_answer() -> None:
    body = CHAT | {"tools": [TOOL], "stream": False}
    _, text = await call("/api/chat", body, model(saying("Wait.", CALLS), HERMES))
    message = json.loads(text)["message"]
    assert (message["role"], message["content"]) == ("assistant", "Wait.")
    assert without_ids(message["tool_calls"]) == EXPECTED_CALLS


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ('{"city": "Os', {}),
        ('{"city": "Oslo", "da', {"city": "Oslo"}),
        ('{"city": "Oslo"', {"city": "Oslo"}),
        ("{", {}),
    ],
)
async def test_a_call_that_was_cut_off_has_its_complete_members(
    written: str, arguments: dict[str, Any]
) -> None:
    text = f'<tool_call>\n{{"name": "weather", "arguments": {written}'
    script = saying(text, reason="length", eos=False)
    for stream in (True, False):
        answer = await lines("/api/chat", CHAT | {"tools": [TOOL]}, model(script, HERMES)) if stream else [
            json.loads((await call("/api/chat", CHAT | {"tools": [TOOL], "stream": False}, model(script, HERMES)))[1])
        ]  # fmt: skip
        calls = [each for line in answer for each in line["message"].get("tool_calls", ())]
        assert [each["function"]["arguments"] for each in calls] == [arguments]
        assert "".join(line["message"]["content"] for line in answer) == ""
        assert answer[-1]["done_reason"] == "length"


async def scored(request: EngineRequest) -> AsyncIterator[EngineEvent]:
    """A character in two tokens, and a token that is not among its candidates."""
    yield Accepted(request.id, 1)
    emoji = "é".encode()
    best = (TokenLogprob(1, b"x", -0.25),) if request.logprobs else ()
    halves = (TokenInfo(7, emoji[:1], False, -1.0, best), TokenInfo(8, emoji[1:], False, -0.5, best))
    yield Chunk(0, "é", halves, id=request.id)
    yield Chunk(0, "!", (TokenInfo(9, b"!", False, -2.0, best),), id=request.id)
    for event in endings(request, 3):
        yield event


@pytest.mark.parametrize(("path", "body"), [("/api/chat", CHAT), ("/api/generate", TEXT)])
async def test_logprobs_are_beside_the_text(path: str, body: dict[str, Any]) -> None:
    asked = body | {"logprobs": True, "top_logprobs": 1}
    answer = await lines(path, asked, model(scored))
    joined = [entry for line in answer for entry in line.get("logprobs", ())]
    top = [{"token": "x", "logprob": -0.25, "bytes": [120]}]
    assert joined == [
        {"token": "\ufffd", "logprob": -1.0, "bytes": [0xC3], "top_logprobs": top},
        {"token": "\ufffd", "logprob": -0.5, "bytes": [0xA9], "top_logprobs": top},
        {"token": "!", "logprob": -2.0, "bytes": [33], "top_logprobs": top},
    ]
    _, whole = await call(path, asked | {"stream": False}, model(scored))
    assert json.loads(whole)["logprobs"] == joined
    alone = await lines(path, body | {"logprobs": True}, model(scored))
    assert alone[0]["logprobs"][0] == {"token": "\ufffd", "logprob": -1.0, "bytes": [0xC3]}
    assert all("logprobs" not in line for line in await lines(path, body | {"top_logprobs": 1}))


WHOLE = 'é模😀 "quoted"\n\u2028\0 <|im_end|>'


@pytest.mark.parametrize("cut", range(1, len(WHOLE)))
async def test_joined_lines_are_the_whole_text_at_every_cut(cut: int) -> None:
    script = saying(WHOLE[:cut], WHOLE[cut:])
    _, text = await call("/api/chat", CHAT, model(script))
    assert len(text.splitlines()) == text.count("\n") == 3
    assert "".join(json.loads(line)["message"]["content"] for line in text.split("\n")[:-1]) == WHOLE
    _, text = await call("/api/generate", TEXT, model(script))
    assert "".join(json.loads(line)["response"] for line in text.split("\n")[:-1]) == WHOLE


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("failure", "status", "text"),
    [
        (
            ContextLengthExceeded(600, 512),
            400,
            "the prompt is longer than the context length currently available to the model: 600 tokens, and the"
            f" context holds 512. {LONGER_CONTEXT}",
        ),
        (Overloaded("full", retry_after=2), 503, "full"),
        (ModelFailed("gone"), 503, "gone"),
        (InsufficientMemory("no room"), 503, "no room"),
        (EngineCrashed("gone"), 503, "gone"),
        (
            RuntimeError("/home/x 0x7f"),
            500,
            "The server failed to answer this request. The log has the reason under the request id.",
        ),
    ],
)
async def test_before_the_first_line_an_error_has_its_status(
    failure: Exception, status: int, text: str, stream: bool
) -> None:
    for path, body in (("/api/chat", CHAT), ("/api/generate", TEXT)):
        assert await error(path, body | {"stream": stream}, model(failing(failure))) == (status, text)


@pytest.mark.parametrize("failure", [EngineCrashed("gone"), RuntimeError("/home/x 0x7f")])
@pytest.mark.parametrize("after", [0, 2])
async def test_after_it_the_last_line_is_the_error(failure: Exception, after: int) -> None:
    answer = await lines("/api/chat", CHAT, model(failing(failure, *["a"] * after, accepted=True)))
    assert [line["message"]["content"] for line in answer[:-1]] == ["a"] * after
    assert list(answer[-1]) == ["error"]
    assert "/home" not in answer[-1]["error"]


async def test_a_model_without_a_template_answers_chats() -> None:
    answer = await lines("/api/chat", CHAT, model(saying("a"), None))
    assert [line["message"]["content"] for line in answer] == ["a", ""]


async def test_the_words_by_which_clients_know_what_a_model_cannot_do() -> None:
    plain, bare = model(), model(template=None)
    assert await error("/api/chat", CHAT | {"think": True}, plain) == (400, '"m" does not support thinking')
    assert await error("/api/chat", CHAT | {"think": "high"}, plain) == (400, '"m" does not support thinking')
    assert await error("/api/chat", CHAT | {"tools": [TOOL]}, bare) == (400, '"m" does not support tools')
    suffix = TEXT | {"suffix": "z"}
    assert await error("/api/generate", suffix, plain) == (400, '"m" does not support insert')
    vectors = model(is_embedding_model=True)
    assert await error("/api/chat", CHAT, vectors) == (400, '"m" does not support chat')
    assert await error("/api/generate", TEXT, vectors) == (400, '"m" does not support generate')
    assert await error("/api/chat", CHAT | {"model": "x:1b"}) == (404, "model 'x:1b' not found")
