"""What a client learns of fields that are ignored: nothing of most, a warning of misspelt and of unhonoured ones."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.support.servers.fronts import http_client

pytestmark = pytest.mark.anyio

MESSAGES = [{"role": "user", "content": "Hi"}]
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/completions": {"prompt": "Hi"},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 9},
    "/lmdeploy/v1/chat/completions": {"messages": MESSAGES},
    "/lmdeploy/v1/completions": {"prompt": "Hi"},
    "/api/chat": {"messages": MESSAGES},
    "/api/generate": {"prompt": "Hi"},
    "/tgi/v1/chat/completions": {"messages": MESSAGES},
}
each_route = pytest.mark.parametrize("path", ROUTES)
OTHERS: dict[str, dict[str, Any]] = {
    "/tgi/generate": {"inputs": "Hi"},
    "/generate": {"prompt": "Hi"},
    "/completion": {"prompt": "Hi"},
}


OF_OTHER_ROUTES: list[tuple[str, dict[str, Any], str]] = [
    (
        "/v1/chat/completions",
        {"system": "x", "think": False, "num_ctx": 9, "mirostat": 2, "suffix": "x", "random_seed": 3},
        "system think num_ctx mirostat suffix random_seed",
    ),
    (
        "/v1/chat/completions",
        {"options": {"temperature": 0, "wait": 1}, "stop_words": ["x"]},
        "options.temperature stop_words",
    ),
    (
        "/v1/completions",
        {"tools": [{"type": "function"}], "chat_template_kwargs": {"a": 1}},
        "tools chat_template_kwargs",
    ),
    ("/v1/responses", {"n": 2, "max_tokens": 3, "system": "x"}, "n max_tokens system"),
    (
        "/v1/messages",
        {"seed": 3, "stop": ["x"], "grammar": "x", "logit_bias": {"3": 1}, "n": 2},
        "seed stop grammar logit_bias n",
    ),
    (
        "/lmdeploy/v1/completions",
        {"guided_json": {"type": "object"}, "grammar": "x", "logit_bias": {"3": 1}},
        "guided_json grammar logit_bias",
    ),
    (
        "/api/chat",
        {"temperature": 0, "seed": 0, "max_tokens": 9, "top_p": 0.5, "stop": "x", "min_p": 0.1},
        "temperature seed max_tokens top_p stop min_p",
    ),
    (
        "/api/generate",
        {"json_schema": {"type": "object"}, "tools": [{"type": "function"}], "lora": ["x"]},
        "json_schema tools lora",
    ),
    ("/api/generate", {"options": {"mirostat": 2, "max_tokens": 5}}, "mirostat max_tokens"),
    (
        "/tgi/v1/chat/completions",
        {"top_k": 3, "min_p": 0.1, "regex": "x", "ignore_eos": True},
        "top_k min_p regex ignore_eos",
    ),
    (
        "/tgi/generate",
        {"parameters": {"min_p": 0.1, "logit_bias": {"3": 1}, "presence_penalty": 1}},
        "min_p logit_bias presence_penalty",
    ),
    ("/generate", {"seed": 3, "frequency_penalty": 1, "regex": "x"}, "seed frequency_penalty regex"),
    ("/completion", {"mirostat": 2, "logit_bias": [[3, 1]], "tools": [{}]}, "mirostat logit_bias tools"),
]


async def warnings(path: str, fields: dict[str, Any]) -> list[str]:
    async with http_client() as client:
        response = await client.post(path, json={"model": "fake"} | (ROUTES | OTHERS).get(path, {}) | fields)
    assert response.status_code == 200, response.text
    return response.headers.get_list("x-jan-serve-warning")


@each_route
@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_misspelt_field_is_warned_of(path: str, is_stream: bool) -> None:
    [warning] = await warnings(path, {"modell": "x", "stream": is_stream})
    assert warning == "'modell': no field of this route, and left out; did you mean model?"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("temprature", "temperature"),
        ("maxTokens", "max_tokens"),
        ("max-tokens", "max_tokens"),
        ("tool", "tools"),
        ("frequency_penality", "frequency_penalty"),
        ("responseFormat", "response_format"),
    ],
)
async def test_the_field_that_was_meant_is_named(written: str, meant: str) -> None:
    [warning] = await warnings("/v1/chat/completions", {written: 1})
    assert warning.endswith(f"did you mean {meant}?")


@pytest.mark.parametrize(
    ("path", "fields", "warning"),
    [
        ("/api/chat", {"options": {"temprature": 0.1, "num_predict": 3}}, "options: 'temprature'"),
        ("/api/generate", {"options": {"numPredict": 3}}, "options: 'numPredict'"),
        ("/api/generate", {"options": {"dry_multiplier": 0.8}}, "options: dry_multiplier: not honoured"),
        ("/tgi/generate", {"inputs": "Hi", "parameters": {"temprature": 0.1}}, "parameters: 'temprature'"),
        (
            "/v1/chat/completions",
            {"stream_options": {"include_usge": True}},
            "stream_options: 'include_usge'",
        ),
        ("/v1/responses", {"reasoning": {"efort": "low"}}, "reasoning: 'efort'"),
    ],
)
async def test_a_misspelt_member_of_a_field_is_warned_of(
    path: str, fields: dict[str, Any], warning: str
) -> None:
    [found] = await warnings(path, fields)
    assert found.startswith(warning)


@pytest.mark.parametrize(
    "name", ["thinking_budget", "thinking_token_budget", "enable_thinking", "reasoning_effort"]
)
@each_route
async def test_a_limit_of_thoughts_is_honoured_or_warned_of(path: str, name: str) -> None:
    takes = path in ("/v1/chat/completions", "/lmdeploy/v1/chat/completions")
    takes = takes or (path == "/v1/responses" and name != "reasoning_effort")
    value: Any = {"enable_thinking": False, "reasoning_effort": "low"}.get(name, 0)
    found = await warnings(path, {name: value})
    assert found == ([] if takes else [f"{name}: not honoured by this route, and left out"])


@each_route
async def test_what_another_server_would_do_is_warned_of(path: str) -> None:
    [warning] = await warnings(path, {"dry_multiplier": 0.8})
    assert warning == "dry_multiplier: not honoured by this route, and left out"


@each_route
@pytest.mark.parametrize(
    "fields",
    [
        {"dry_multiplier": 0, "xtc_probability": 0.0, "samplers": None, "prediction": None},
        {"client_metadata": {"a": "b"}, "x": 1, "betas": [], "speed": "fast", "metadata": {"a": "b"}},
        {"top_n_sigma": -1, "id_slot": -1, "cache_prompt": True, "modalities": ["text"]},
        {"a" * 100: 1, "ünknown_fjeld": 1, "include_reasoning": True, "parse_tool_calls": True},
    ],
)
async def test_what_changes_nothing_is_ignored_in_silence(path: str, fields: dict[str, Any]) -> None:
    assert await warnings(path, fields) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("repetition_penalty", 1.2),
        ("cache_prompt", False),
        ("id_slot", 0),
        ("typical_p", 0.5),
        ("echo", True),
        ("chat_template", "{{ messages }}"),
        ("include_reasoning", False),
        ("separate_reasoning", False),
        ("parse_tool_calls", False),
        ("stop_regex", "a+"),
        ("lora_path", "x"),
        ("reasoning.exclude", True),
    ],
)
async def test_values_that_change_an_answer_are_warned_of(name: str, value: Any) -> None:
    field, _, member = name.partition(".")
    [warning] = await warnings("/v1/chat/completions", {field: {member: value} if member else value})
    assert warning.startswith(f"{name}: not honoured")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tool_choice", "required"),
        ("response_format", {"type": "json_object"}),
        ("parallel_tool_calls", False),
        ("max_completion_tokens", 5),
        ("repetition_detection", {"max_pattern_size": 9, "min_count": 3}),
    ],
)
async def test_fields_of_openai_are_warned_of_where_the_api_has_none(name: str, value: Any) -> None:
    [warning] = await warnings("/api/chat", {name: value})
    assert warning == f"{name}: not honoured by this route, and left out"


@pytest.mark.parametrize(("path", "fields", "named"), OF_OTHER_ROUTES)
async def test_what_other_routes_honour_is_warned_of(path: str, fields: dict[str, Any], named: str) -> None:
    found = await warnings(path, fields)
    names = [text.removesuffix(": not honoured by this route, and left out").split()[-1] for text in found]
    assert sorted(names) == sorted(named.split())


@each_route
async def test_no_values_of_fields_of_other_routes_are_ignored_in_silence(path: str) -> None:
    fields = dict.fromkeys(("seed", "n", "stop", "tools", "grammar", "logit_bias", "temperature", "lora"))
    assert await warnings(path, fields | {"mirostat": 0, "options": {}, "suffix": ""}) == []


async def test_the_log_has_each_warning_once(caplog: pytest.LogCaptureFixture) -> None:
    body = {"model": "fake", "messages": MESSAGES, "temprature": 1}
    with caplog.at_level(logging.WARNING, "jan_serve.fields"):
        async with http_client(fresh=True) as client:
            for extra in ({}, {}, {"xtc_probability": 0.5}):
                await client.post("/v1/chat/completions", json=body | extra)
    texts = [record.getMessage() for record in caplog.records if record.name == "jan_serve.fields"]
    assert [text.partition(":")[0] for text in texts] == ["'temprature'", "xtc_probability"]


async def test_a_name_is_no_way_to_write_lines_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with http_client(fresh=True) as client:
        for number in range(300):
            fields = {f"temperature\n{number}": 1}
            await client.post("/v1/chat/completions", json={"messages": MESSAGES} | fields)
    texts = [record.getMessage() for record in caplog.records if record.name == "jan_serve.fields"]
    assert 0 < len(texts) <= 256
    assert not any("\n" in text for text in texts)
