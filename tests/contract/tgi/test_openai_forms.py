"""TGI's chat and completions under /tgi/v1, byte for byte, over a model whose tokens are bytes."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from jan_serve import __version__
from jan_serve.core.events import TokenInfo
from jan_serve.errors import EngineFailure
from jan_serve.ipc.messages import Accepted, Chunk, EngineEvent, EngineRequest
from tests.contract.tgi.scripts import answers
from tests.support.documented import document
from tests.support.engine.fake_client import (
    FakeClient,
    FakeModels,
    Script,
    endings,
    fake_facts,
    prompt_text,
    saying,
)
from tests.support.servers.fronts import http_client

pytestmark = pytest.mark.anyio

CHAT = "/tgi/v1/chat/completions"
COMPLETIONS = "/tgi/v1/completions"
ASK: list[dict[str, Any]] = [{"role": "user", "content": "Hi"}]
EOS = TokenInfo(257, b"</s>", True, -0.125)
FINGERPRINT = f"3.3.6-jan-serve-{__version__}"
TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"properties": {"a": {"type": "integer"}}}},
}
HEAD = f'"id":"","created":1,"model":"fake","system_fingerprint":"{FINGERPRINT}"'

_CREATED = re.compile(r'"created":\d{10}')


async def call(
    path: str, script: Script | None = None, over: FakeClient | None = None, **body: Any
) -> httpx.Response:
    if over is None:
        over = FakeClient(script=script or saying("Hel", "lo."), facts=fake_facts(n_ctx=4096))
    async with http_client(FakeModels(over)) as client:
        return await client.post(path, json=body)


def text_of(response: httpx.Response) -> str:
    return _CREATED.sub('"created":1', response.text)


def chunk(content: str, finish: str = "null", logprobs: str = "null") -> str:
    return (
        f'data: {{"object":"chat.completion.chunk",{HEAD},"choices":[{{"index":0,"delta":{{"role":"assistant",'
        f'"content":"{content}"}},"logprobs":{logprobs},"finish_reason":{finish}}}],"usage":null}}\n\n'
    )


def usage_chunk(prompt: int, completion: int) -> str:
    return (
        f'data: {{"object":"chat.completion.chunk",{HEAD},"choices":[],"usage":{{"prompt_tokens":{prompt},'
        f'"completion_tokens":{completion},"total_tokens":{prompt + completion}}}}}\n\n'
    )


async def test_a_chat_stream() -> None:
    response = await call(
        CHAT,
        saying("ok", end_token=EOS),
        messages=ASK,
        stream=True,
        logprobs=True,
        stream_options={"include_usage": True},
    )
    logprobs = [
        f'{{"content":[{{"token":"{text}","logprob":{value},"top_logprobs":[]}}]}}'
        for text, value in (("o", -0.5), ("k", -0.5), ("</s>", -0.125))
    ]
    prompt = int(re.findall(r'"prompt_tokens":(\d+)', response.text)[0])
    assert text_of(response) == (
        chunk("o", logprobs=logprobs[0])
        + chunk("k", logprobs=logprobs[1])
        + chunk("", '"stop"', logprobs[2])
        + usage_chunk(prompt, 3)
        + "data: [DONE]\n\n"
    )
    assert response.headers["x-compute-characters"] == str(prompt)


async def test_the_last_token_of_a_cut_text_has_the_reason() -> None:
    response = await call(CHAT, saying("ok", reason="length", eos=False), messages=ASK, stream=True)
    assert text_of(response) == chunk("o") + chunk("k", '"length"') + "data: [DONE]\n\n"


async def test_a_whole_chat() -> None:
    response = await call(CHAT, saying("ok", stop="k", eos=False), messages=ASK)
    body = response.json()
    assert list(body) == ["object", "id", "created", "model", "system_fingerprint", "choices", "usage"]
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "ok"},
            "logprobs": None,
            "finish_reason": "stop_sequence",
        }
    ]
    assert body["usage"]["completion_tokens"] == 2
    assert response.headers["x-prompt-tokens"] == str(body["usage"]["prompt_tokens"])
    assert response.headers["x-generated-tokens"] == "2"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"temperature": -1}, "Input validation error: `temperature` must be strictly positive"),
        ({"top_logprobs": 6}, "Input validation error: `top_n_tokens` must be >= 0 and <= 5. Given: 6"),
        ({"presence_penalty": -2}, "Input validation error: `repetition_penalty` must be strictly positive"),
        ({"max_tokens": 0}, "Input validation error: `max_new_tokens` must be strictly positive"),
    ],
)
async def test_validation_is_in_the_stream(fields: dict[str, Any], words: str) -> None:
    whole = await call(CHAT, messages=ASK, **fields)
    assert (whole.status_code, whole.json()) == (422, {"error": words, "error_type": "validation"})
    streamed = await call(CHAT, messages=ASK, stream=True, **fields)
    assert streamed.status_code == 200
    body = json.dumps({"error": {"message": words, "http_status_code": 422}}, separators=(",", ":"))
    assert streamed.text == f"data: {body}\n\ndata: [DONE]\n\n"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tools": [TOOL], "tool_choice": "g"}, "Tool error: Tool with name g not found"),
        (
            {"tools": [], "response_format": {"type": "json_object", "value": {}}},
            "Tool error: Grammar and tools are mutually exclusive",
        ),
    ],
)
async def test_tools_are_checked_before_a_stream(fields: dict[str, Any], words: str) -> None:
    response = await call(CHAT, messages=ASK, stream=True, **fields)
    assert (response.status_code, response.json()) == (422, {"error": words, "error_type": "tool_error"})


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "text"}},
        {"response_format": {"type": "json_object"}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
        {"logit_bias": {"1": 1}},
        {"stop": "a"},
        {"max_tokens": 1, "max_completion_tokens": 1},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"stream": None},
    ],
)
async def test_what_the_framework_refuses(fields: dict[str, Any]) -> None:
    response = await call(CHAT, messages=ASK, **fields)
    assert (response.status_code, response.headers["content-type"]) == (422, "text/plain; charset=utf-8")
    assert response.text.startswith("Failed to deserialize the JSON body into the target type: ")


@pytest.mark.parametrize(
    ("requested", "reported"), [("tgi", "fake"), ("foo", "foo"), (None, "fake"), ("", "fake")]
)
async def test_names(requested: str | None, reported: str) -> None:
    assert (await call(CHAT, messages=ASK, model=requested)).json()["model"] == reported
    assert (await call(COMPLETIONS, prompt="a", model=requested)).json()["model"] == "fake"


async def test_what_reaches_the_engine() -> None:
    client = FakeClient()
    tail = [*ASK, {"role": "assistant", "content": "Well "}]
    await call(CHAT, over=client, messages=ASK, presence_penalty=0.0, max_completion_tokens=7)
    await call(CHAT, over=client, messages=tail, temperature=0, top_p=0.5)
    await call(COMPLETIONS, over=client, prompt="a", temperature=0, repetition_penalty=1.5)
    first, second, third = client.requests
    assert (first.sampling.repeat_penalty, first.sampling.temperature) == (2.0, 1.0)
    assert first.stopping.max_tokens == 7
    [ids] = first.prompt
    assert isinstance(ids, tuple) and ids[:1] != (256,)
    assert prompt_text(second).endswith("assistant\nWell")
    assert (second.sampling.temperature, third.sampling.temperature) == (0.0, 0.0)
    assert (third.sampling.repeat_penalty, third.prompt) == (1.5, ((256, 97),))


async def test_a_failure_in_a_stream() -> None:
    async def script(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        yield Accepted(request.id, 3)
        raise EngineFailure("x")

    calls: list[tuple[str, dict[str, Any]]] = [(CHAT, {"messages": ASK}), (COMPLETIONS, {"prompt": "a"})]
    for path, fields in calls:
        response = await call(path, script, stream=True, **fields)
        assert response.text == (
            'data: {"error":{"message":"Request failed during generation: x","http_status_code":422}}\n\n'
            "data: [DONE]\n\n"
        )


def by_prompt(**texts: str) -> Script:
    """Answers by the end of the prompt."""

    async def script(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        text = next(text for end, text in texts.items() if prompt_text(request).endswith(end))
        yield Accepted(request.id, len(prompt_text(request)))
        for letter in text:
            yield Chunk(0, letter, (TokenInfo(ord(letter), letter.encode(), False, -0.5),), id=request.id)
        for event in endings(request, len(text), end_token=EOS):
            yield event

    return script


async def test_completions_of_several_prompts() -> None:
    response = await call(COMPLETIONS, by_prompt(a="A", b="BB"), prompt=["a", "b"])
    body = response.json()
    assert list(body) == ["object", "id", "created", "model", "system_fingerprint", "choices", "usage"]
    assert body["object"] == "text_completion"
    assert sorted(body["choices"], key=lambda choice: choice["index"]) == [
        {"index": 0, "text": "A", "logprobs": None, "finish_reason": "stop"},
        {"index": 1, "text": "BB", "logprobs": None, "finish_reason": "stop"},
    ]
    assert body["usage"] == {"prompt_tokens": 2, "completion_tokens": 5, "total_tokens": 7}
    assert response.headers["x-generated-tokens"] == "5"
    assert "x-compute-time" not in response.headers
    # Sums over the prompts: each waits 0.1 s, and takes 0.5 s for two tokens and for three.
    assert (response.headers["x-queue-time"], response.headers["x-inference-time"]) == ("200", "1000")
    assert response.headers["x-time-per-token"] == str(int((0.5 / 2 + 0.5 / 3) * 1000))


async def test_a_stream_of_completions() -> None:
    response = await call(COMPLETIONS, by_prompt(a="A", b="BB"), prompt=["a", "b"], stream=True)
    *events, done, rest = text_of(response).split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    mine = [event for event in events if '"index":1' in event]
    shell = f'data: {{"object":"text_completion",{HEAD},"choices":[{{"index":1,"text":'
    assert mine == [
        shell + '"B","logprobs":null,"finish_reason":""}]}',
        shell + '"B","logprobs":null,"finish_reason":""}]}',
        shell + '"</s>","logprobs":null,"finish_reason":"eos_token"}],"usage":{"prompt_tokens":1,'
        '"completion_tokens":3,"total_tokens":4}}',
    ]
    assert len(events) == 5


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        (
            {"prompt": ["a"] * 5},
            {
                "error": "Number of prompts exceeds the maximum allowed batch size of 4",
                "error_type": "batch size exceeded",
            },
        ),
        (
            {"prompt": "a", "suffix": ""},
            {
                "error": "Suffix is not supported and can be achieved by preprocessing the prompt.",
                "error_type": "suffix not supported",
            },
        ),
    ],
)
async def test_completions_that_are_refused(fields: dict[str, Any], body: dict[str, str]) -> None:
    for stream in (False, True):
        response = await call(COMPLETIONS, stream=stream, **fields)
        assert (response.status_code, response.json()) == (422, body)


@pytest.mark.parametrize("prompt", [[], [1, 2], [["a"]], None])
async def test_prompts_that_are_none(prompt: Any) -> None:
    response = await call(COMPLETIONS, prompt=prompt)
    assert (response.status_code, response.headers["content-type"]) == (422, "text/plain; charset=utf-8")
    assert "prompt" in response.text
    assert prompt != [] or "Empty array detected. Do not use an empty array for the prompt." in response.text


# Tools


CALL = '{"function": {"_name": "f", "a": 12}}'
NO_CALL = '{"function": {"_name": "no_tool", "content": "x"}}'


async def test_a_whole_call() -> None:
    response = await call(CHAT, answers(CALL), messages=ASK, tools=[TOOL])
    [choice] = response.json()["choices"]
    assert choice["message"] == {
        "role": "assistant",
        "tool_calls": [
            {
                "id": "0",
                "type": "function",
                "function": {"description": None, "name": "f", "arguments": '{"a":12}'},
            }
        ],
    }
    assert choice["finish_reason"] == "stop"


async def test_a_streamed_call() -> None:
    history = [
        *ASK,
        {"role": "assistant", "tool_calls": [{"id": "4"}, {"id": "x"}]},
        {"role": "tool", "content": "1"},
    ]
    response = await call(
        CHAT,
        answers(CALL),
        messages=history,
        tools=[TOOL],
        stream=True,
        stream_options={"include_usage": True},
    )
    *events, done = [event.removeprefix("data: ") for event in text_of(response).split("\n\n") if event]
    assert done == "[DONE]"
    chunks = [json.loads(event) for event in events]
    parts = [each["choices"][0]["delta"]["tool_calls"][0] for each in chunks[:-2]]
    assert parts[0] == {
        "index": 0,
        "id": "5",
        "type": "function",
        "function": {"name": "f", "arguments": "{"},
    }
    assert {(part["id"], part["function"]["name"]) for part in parts[1:]} == {("5", None)}
    assert "".join(part["function"]["arguments"] for part in parts) == '{ "a": 12}'
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    # The end token counts, though the engine need not compute it after a grammar.
    assert chunks[-1]["usage"]["completion_tokens"] == len(CALL) + 1


async def test_declined_tools_are_answered_by_a_text() -> None:
    whole = (await call(CHAT, answers(NO_CALL, "ok"), messages=ASK, tools=[TOOL])).json()
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": "ok"}
    assert whole["usage"]["completion_tokens"] == len(NO_CALL) + 1
    client = FakeClient(script=answers(NO_CALL, "ok"), facts=fake_facts(n_ctx=4096))
    streamed = await call(CHAT, over=client, messages=ASK, tools=[TOOL], stream=True)
    assert text_of(streamed) == chunk("o") + chunk("k") + chunk("", '"stop"') + "data: [DONE]\n\n"
    assert "no_tool" in prompt_text(client.requests[0])
    assert "no_tool" not in prompt_text(client.requests[1])
    assert client.requests[1].guide is None
    assert client.closed_early == [client.requests[0].id]


async def test_a_call_that_was_cut_off() -> None:
    cut = saying('{"function": {"_na', reason="length", eos=False)
    for stream in (False, True):
        response = await call(CHAT, cut, messages=ASK, tools=[TOOL], tool_choice="required", stream=stream)
        assert response.status_code == (200 if stream else 422)
        assert "Tool error: Failed to parse generated text: " in response.text


SHOWS = "{% for t in tools %}[{{ t.function.name }}]{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}"
PLAIN = "{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "choice", "prompt"),
    [
        (SHOWS, "auto", "[f][no_tool]Hi\n---\nTP"),
        (SHOWS, "required", "[f]Hi\n---\nTP"),
        (SHOWS, "f", "[f]Hi\n---\nTP"),
        (SHOWS, {"type": "function", "function": {"name": "f"}}, "[f]Hi\n---\nTP"),
        (SHOWS, "none", "Hi"),
        (
            PLAIN,
            "required",
            'Hi\n---\n[{"type":"function","function":{"description":null,"name":"f","parameters":'
            '{"properties":{"a":{"type":"integer"}}}}}]\nTP',
        ),
    ],
    ids=["auto", "required", "by name", "by object", "none", "a template without tools"],
)
async def test_prompts_with_tools(template: str, choice: Any, prompt: str) -> None:
    client = FakeClient(facts=fake_facts(chat_templates={"default": template}), script=answers(CALL))
    await call(CHAT, over=client, messages=ASK, tools=[TOOL], tool_choice=choice, tool_prompt="TP")
    assert prompt_text(client.requests[0]) == prompt
    assert (client.requests[0].guide is None) == (choice == "none")


async def test_roles_are_the_templates_affair() -> None:
    client = FakeClient()
    turns = [{"role": role, "content": "x"} for role in ("developer", "critic", "user")]
    await call(CHAT, over=client, messages=turns)
    assert re.findall(r"<\|im_start\|>(\w+)", prompt_text(client.requests[0])) == [
        "system",
        "critic",
        "user",
        "assistant",
    ]


async def test_a_temperature_of_0_is_greedy_with_any_other_option() -> None:
    client = FakeClient()
    await call(COMPLETIONS, over=client, prompt="a", temperature=0, top_p=0.5)
    assert client.requests[0].sampling.temperature == 0.0


async def test_lengths_are_checked_before_grammars() -> None:
    messages = [{"role": "user", "content": "a" * 4000}]
    form: dict[str, Any] = {"type": "json", "value": {}}
    for limit, words in ((9999, "must be <="), (1, "grammar is not valid")):
        assert words in (await call(CHAT, messages=messages, max_tokens=limit, response_format=form)).text


async def test_n_is_taken_and_not_used() -> None:
    """As there: the document has it, and there is one answer."""
    answer = await call(CHAT, messages=ASK, n=3)
    assert [choice["index"] for choice in answer.json()["choices"]] == [0]
    assert (await call(CHAT, messages=ASK, n=None)).status_code == 200
    assert (await call(CHAT, messages=ASK, n=-1)).status_code == 422
    asked = document()["paths"][CHAT]["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    member = document()["components"]["schemas"][asked.rpartition("/")[2]]["properties"]["n"]
    assert {"type": "integer", "minimum": 0, "maximum": 2**32 - 1} in member["anyOf"]
