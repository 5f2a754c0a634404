"""What Ollama's integration tests check of its API, written anew, with its own client and with plain requests.

Runs in the environment of the clients, against the server of JAN_SERVE_URL.
"""

from __future__ import annotations

import base64
import json
import math
import os
import struct
import threading
import zlib
from collections.abc import Callable
from typing import Any

import httpx
import ollama
import pytest

URL = os.environ["JAN_SERVE_URL"]
MODEL = "jan-tiny"
CLIENT = ollama.Client(host=URL)
SKY: Any = [{"role": "user", "content": "why is the sky blue?"}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "color": {"type": "string", "enum": ["blue", "violet"]},
        "count": {"type": "integer", "minimum": 1, "maximum": 3},
    },
    "required": ["color", "count"],
    "additionalProperties": False,
}
LOCATION = {"type": "object", "required": ["location"], "properties": {"location": {"type": "string"}}}
GREEDY = {"temperature": 0}
Answer = Callable[..., list[dict[str, Any]]]


def lines(path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    response = httpx.post(f"{URL}{path}", json={"model": MODEL, **body}, timeout=120)
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.text.splitlines()]


def error(path: str, body: dict[str, Any]) -> tuple[int, str]:
    response = httpx.post(f"{URL}{path}", json={"model": MODEL, **body}, timeout=120)
    return response.status_code, response.json()["error"]


def red_picture() -> str:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + b"\xff\0\0" * 16) * 16
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0))
    return base64.b64encode(
        b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    ).decode()


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("path", ["/api/generate", "/api/chat"])
def test_an_answer_ends_with_its_measures(path: str, stream: bool) -> None:
    asked = {"messages": SKY} if path == "/api/chat" else {"prompt": SKY[0]["content"]}
    parts = lines(path, {**asked, "stream": stream, "options": {**GREEDY, "seed": 123}})
    assert all(part["model"] == MODEL and part["created_at"] for part in parts)
    assert [part["done"] for part in parts] == [False] * (len(parts) - 1) + [True]
    last = parts[-1]
    assert last["done_reason"] == "stop"
    for measure in ("total_duration", "load_duration", "prompt_eval_duration", "eval_count", "eval_duration"):
        assert last[measure] > 0
    assert last["prompt_eval_count"] > 0
    text = "".join(part["message"]["content"] if path == "/api/chat" else part["response"] for part in parts)
    assert text


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_an_answer_has_the_context_for_the_next_question(stream: bool) -> None:
    last = lines("/api/generate", {"prompt": "Hello!", "stream": stream})[-1]
    assert len(last["context"]) > 0


def test_a_loaded_model_is_listed() -> None:
    lines("/api/generate", {"prompt": "Hello!", "stream": False})
    [model] = [each for each in CLIENT.ps().models if each.model == f"{MODEL}:latest"]
    assert model.size
    assert model.digest
    assert model.expires_at
    details(model.details)


def details(found: Any) -> None:
    assert (found.format, found.family) == ("gguf", "llama")
    assert found.parameter_size
    assert found.quantization_level


def test_models_are_listed() -> None:
    model = CLIENT.list().models[0]
    assert model.model
    assert model.modified_at
    assert model.size
    assert model.digest
    details(model.details)


def test_a_model_is_shown() -> None:
    shown = CLIENT.show(MODEL)
    assert shown.modelfile
    assert shown.template
    assert shown.license
    assert shown.modelinfo
    assert shown.modified_at
    details(shown.details)


def test_a_created_model_has_parameters_and_a_system_message() -> None:
    CLIENT.create(model="made", from_=MODEL, system="Be brief.", parameters={"temperature": 0, "stop": ["x"]})
    try:
        shown = CLIENT.show("made")
        assert "temperature" in str(shown.parameters)
        assert "Be brief." in str(shown.modelfile)
        assert CLIENT.generate("made", "Hello!").done
    finally:
        CLIENT.delete("made")


def test_a_created_model_with_a_template_of_go_answers_with_its_own() -> None:
    template = "{{ if .System }}{{ .System }} {{ end }}{{ if .Prompt }}{{ .Prompt }}{{ end }}{{ .Response }}"
    CLIENT.create(model="made-go", from_=MODEL, template=template, system="Be brief.")
    try:
        assert CLIENT.chat("made-go", messages=SKY).message.content
    finally:
        CLIENT.delete("made-go")


@pytest.mark.parametrize("name", ["copied", "user/copied", "copied:tag"])
def test_a_model_is_copied_and_deleted(name: str) -> None:
    assert CLIENT.copy(MODEL, name).status == "success"
    assert CLIENT.generate(name, "Hello!").done
    assert CLIENT.delete(name).status == "success"
    assert error("/api/generate", {"model": name, "prompt": "Hello!"})[0] == 404


def test_an_empty_prompt_loads_and_unloads() -> None:
    assert CLIENT.generate(MODEL).done_reason == "load"
    assert CLIENT.generate(MODEL, keep_alive=0).done_reason == "unload"
    assert CLIENT.chat(MODEL, messages=[]).done_reason == "load"
    assert CLIENT.chat(MODEL, messages=[], keep_alive=0).done_reason == "unload"


@pytest.mark.parametrize("keep_alive", ["10s", "-1m", -1, 300, "1h30m"])
def test_keep_alive_is_taken_in_its_forms(keep_alive: str | int) -> None:
    assert CLIENT.generate(MODEL, "Hello!", keep_alive=keep_alive).done


def test_the_old_embeddings_have_one_vector() -> None:
    assert len(CLIENT.embeddings(MODEL, "why is the sky blue?").embedding) > 0


def test_embeddings_of_several_texts_are_their_own() -> None:
    one, both = CLIENT.embed(MODEL, "cat"), CLIENT.embed(MODEL, ["cat", "why is the grass green?"])
    assert (len(one.embeddings), len(both.embeddings)) == (1, 2)
    products = sum(a * b for a, b in zip(one.embeddings[0], both.embeddings[0], strict=True))
    assert products > 0.99
    assert math.isclose(sum(a * a for a in one.embeddings[0]), 1, abs_tol=1e-3)


def test_embeddings_count_the_tokens_of_all_texts() -> None:
    one, three = CLIENT.embed(MODEL, "test"), CLIENT.embed(MODEL, ["test"] * 3)
    assert one.prompt_eval_count
    assert three.prompt_eval_count == 3 * one.prompt_eval_count
    assert three.total_duration
    assert three.load_duration is not None


@pytest.mark.parametrize("dimensions", [1, 7, 64])
def test_embeddings_are_cut_to_a_dimension_and_of_length_one(dimensions: int) -> None:
    [vector] = CLIENT.embed(MODEL, "cat", dimensions=dimensions).embeddings
    assert len(vector) == dimensions
    assert math.isclose(sum(a * a for a in vector), 1, abs_tol=1e-3)


@pytest.mark.parametrize(
    "texts", [["word " * 100], ["short", "long " * 100, "medium text"]], ids=["one", "three"]
)
def test_a_long_text_is_cut_for_embeddings(texts: list[str]) -> None:
    found = CLIENT.embed(MODEL, texts, truncate=True, options={"num_ctx": 50})
    assert len(found.embeddings) == len(texts)
    assert found.prompt_eval_count
    assert found.prompt_eval_count <= 50 * len(texts)


def test_a_long_text_is_refused_where_it_may_not_be_cut() -> None:
    body = {"input": "word " * 100, "truncate": False, "options": {"num_ctx": 10}}
    status, message = error("/api/embed", body)
    assert status == 400
    assert "context length" in message


@pytest.mark.parametrize("texts", ["", []])
def test_nothing_to_embed_is_an_empty_list(texts: Any) -> None:
    assert lines("/api/embed", {"input": texts})[0]["embeddings"] == []


@pytest.mark.parametrize("form", ["json", SCHEMA], ids=["json", "schema"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("path", ["/api/generate", "/api/chat"])
@pytest.mark.parametrize("temperature", [0, 0.7])
def test_a_format_binds_the_answer(form: Any, stream: bool, path: str, temperature: float) -> None:
    text = "Return an object with a color and a small count. Output JSON only."
    asked = {"messages": [{"role": "user", "content": text}]} if path == "/api/chat" else {"prompt": text}
    options = {"temperature": temperature, "seed": 17, "num_predict": 512}
    parts = lines(path, {**asked, "stream": stream, "format": form, "think": False, "options": options})
    found = json.loads(
        "".join(part["message"]["content"] if path == "/api/chat" else part["response"] for part in parts)
    )
    if form is SCHEMA:
        assert set(found) == {"color", "count"}
        assert found["color"] in ("blue", "violet")
        assert 1 <= found["count"] <= 3


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("path", ["/api/generate", "/api/chat"])
def test_log_probabilities_are_finite(path: str, stream: bool, constrained: bool) -> None:
    asked = {"messages": SKY} if path == "/api/chat" else {"prompt": SKY[0]["content"]}
    form = {"format": SCHEMA} if constrained else {}
    parts = lines(
        path, {**asked, **form, "stream": stream, "logprobs": True, "top_logprobs": 20, "options": GREEDY}
    )
    entries = [entry for part in parts for entry in part.get("logprobs") or []]
    assert len(entries) > 0
    for entry in entries:
        assert entry["token"] is not None
        assert all(math.isfinite(each["logprob"]) for each in (entry, *entry["top_logprobs"]))


@pytest.mark.parametrize("number", [-1, 21])
def test_a_number_of_log_probabilities_out_of_range_is_refused(number: int) -> None:
    body = {"prompt": "Hello!", "logprobs": True, "top_logprobs": number}
    assert error("/api/generate", body)[0] == 400


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_thought_is_apart(stream: bool) -> None:
    asked = {"messages": [{"role": "user", "content": "What is 2+3?"}], "options": GREEDY, "stream": stream}
    for think in (True, "low", "high"):
        parts = lines("/api/chat", {**asked, "think": think})
        assert "".join(part["message"].get("thinking") or "" for part in parts)
        assert "<think>" not in "".join(part["message"]["content"] for part in parts)
    parts = lines("/api/chat", {**asked, "think": False})
    assert not any(part["message"].get("thinking") for part in parts)


TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "description": "Get the current weather", "parameters": LOCATION},
}
SYSTEM = "When the user asks for weather, call get_weather."
TURN = "What is the weather in Oslo?"
CALL = {"name": "get_weather", "arguments": {"location": "Paris"}}
RESULT = '{"condition":"sunny"}'
WRITTEN = {"name": "get_weather", "arguments": '{"location":"Paris"}'}


def sse(path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    response = httpx.post(f"{URL}{path}", json={"model": MODEL, "stream": True, **body}, timeout=120)
    assert response.status_code == 200, response.text
    data = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    return [json.loads(each) for each in data if each != "[DONE]"]


def by_ollama() -> list[tuple[str, str]]:
    turns = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "Call get_weather for Paris."},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "call_previous", "function": CALL}]},
        {"role": "tool", "content": RESULT, "tool_name": "get_weather", "tool_call_id": "call_previous"},
        {"role": "user", "content": TURN},
    ]
    body = {"messages": turns, "tools": [TOOL], "think": False, "options": {**GREEDY, "num_predict": 256}}
    calls = [call for part in lines("/api/chat", body) for call in part["message"].get("tool_calls") or []]
    return [(call["function"]["name"], json.dumps(call["function"]["arguments"])) for call in calls]


def by_chat_completions() -> list[tuple[str, str]]:
    turns = [
        {"role": "system", "content": "Tool protocol compatibility test."},
        {"role": "developer", "content": SYSTEM},
        {"role": "user", "content": [{"type": "text", "text": "Call get_weather for Paris."}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": WRITTEN}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": RESULT}]},
        {"role": "user", "content": TURN},
    ]
    body = {
        "messages": turns,
        "tools": [TOOL],
        "temperature": 0,
        "max_tokens": 256,
        "reasoning_effort": "none",
    }
    name, arguments = "", ""
    for event in sse("/v1/chat/completions", body):
        for choice in event["choices"]:
            for call in choice["delta"].get("tool_calls", ()):
                name += call["function"].get("name", "")
                arguments += call["function"]["arguments"]
    return [(name, arguments)]


def by_responses() -> list[tuple[str, str]]:
    items = [
        {"type": "message", "role": "developer", "content": SYSTEM},
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Call it for Paris."}],
        },
        {"type": "function_call", "call_id": "c1", **WRITTEN},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": RESULT}]},
        {"type": "message", "role": "user", "content": TURN},
    ]
    tool = {"type": "function", "name": "get_weather", "strict": False, "parameters": LOCATION}
    body = {"input": items, "tools": [tool], "temperature": 0, "reasoning": {"effort": "none"}}
    done = [
        event["item"] for event in sse("/v1/responses", body) if event["type"] == "response.output_item.done"
    ]
    return [(item["name"], item["arguments"]) for item in done if item["type"] == "function_call"]


def by_messages() -> list[tuple[str, str]]:
    use = {"type": "tool_use", "id": "c1", "name": "get_weather", "input": {"location": "Paris"}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": RESULT}]}
    body = {
        "max_tokens": 256,
        "system": [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Call get_weather for Paris."}]},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [result, {"type": "text", "text": TURN}]},
        ],
        "tools": [{"name": "get_weather", "input_schema": LOCATION}],
        "temperature": 0,
        "thinking": {"type": "disabled"},
    }
    name, arguments = "", ""
    for event in sse("/v1/messages", body):
        if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
            name = event["content_block"]["name"]
        elif event["type"] == "content_block_delta" and event["delta"]["type"] == "input_json_delta":
            arguments += event["delta"]["partial_json"]
    return [(name, arguments)]


@pytest.mark.parametrize("ask", [by_ollama, by_chat_completions, by_responses, by_messages])
def test_a_tool_is_called_after_an_earlier_call(ask: Callable[[], list[tuple[str, str]]]) -> None:
    [(name, arguments)] = ask()
    assert name == "get_weather"
    assert json.loads(arguments)["location"]


def test_a_prompt_longer_than_the_context_is_cut() -> None:
    text = "Our wonderful sovereign has to perform the noblest role on earth. " * 40
    found = CLIENT.generate(MODEL, text, options={"num_ctx": 128, "temperature": 0})
    assert found.done
    assert found.prompt_eval_count
    assert found.prompt_eval_count <= 128


def test_many_clients_get_their_answers() -> None:
    found: list[str] = []

    def ask() -> None:
        found.append(ollama.Client(host=URL).generate(MODEL, "Hello!", options=GREEDY).response)

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(found) == 16
    assert all(found)


@pytest.mark.parametrize("path", ["/api/generate", "/api/chat"])
def test_pictures_are_seen(path: str) -> None:
    text, picture = "What do you see?", red_picture()
    turn = {"role": "user", "content": text, "images": [picture]}
    asked = {"messages": [turn]} if path == "/api/chat" else {"prompt": text, "images": [picture]}
    [found] = lines(path, {**asked, "stream": False, "options": GREEDY})
    assert found["done_reason"] == "stop"


@pytest.mark.parametrize("options", [
    {"num_predict": 3}, {"num_predict": -1}, {"num_predict": -2}, {"stop": ["H"]}, {"stop": "H"}, {"top_k": 1},
    {"seed": 5}, {"repeat_last_n": -1}, {"mirostat": 2}, {"num_keep": 5}, {"num_gpu": 0}, {"num_thread": 1},
    {"min_p": 0.1}, {"typical_p": 0.5}, {"presence_penalty": 1}, {"use_mmap": False}, {"num_batch": 64},
], ids=json.dumps)  # fmt: skip
def test_options_are_taken(options: dict[str, Any]) -> None:
    found = CLIENT.generate(MODEL, "Hello!", options=options)
    assert found.done_reason == ("length" if options == {"num_predict": 3} else "stop")


def test_a_raw_prompt_has_no_template() -> None:
    raw = CLIENT.generate(MODEL, "Hello!", raw=True, options={"num_predict": 1})
    assert raw.prompt_eval_count
    assert raw.prompt_eval_count < (CLIENT.generate(MODEL, "Hello!").prompt_eval_count or 0)


def test_a_suffix_is_filled_in() -> None:
    assert "insert" in (CLIENT.show(MODEL).capabilities or [])
    assert CLIENT.generate(MODEL, "def add(a, b):", suffix="return c", options={"num_predict": 16}).eval_count


@pytest.mark.parametrize("path, body", [
    ("/api/generate", {"prompt": "a"}), ("/api/chat", {"messages": SKY}), ("/api/embed", {"input": "a"}),
    ("/api/embeddings", {"prompt": "a"}), ("/api/show", {}), ("/api/copy", {"source": "absent", "destination": "b"}),
])  # fmt: skip
def test_an_unknown_model_is_not_found(path: str, body: dict[str, Any]) -> None:
    status, message = error(path, {**body, "model": "absent"})
    assert status == 404
    assert "not found" in message


@pytest.mark.parametrize("path, body", [
    ("/api/chat", {"messages": "hi"}), ("/api/chat", {"messages": [{"role": "user", "content": 5}]}),
    ("/api/generate", {"prompt": 5}), ("/api/generate", {"prompt": "a", "format": "xml"}),
    ("/api/generate", {"prompt": "a", "options": []}), ("/api/generate", {"prompt": "a", "images": ["%%"]}),
    ("/api/generate", {"model": "", "prompt": "a"}), ("/api/embed", {"input": 5}),
    ("/api/generate", {"prompt": "a", "keep_alive": "soon"}), ("/api/create", {"model": "x"}),
])  # fmt: skip
def test_what_is_malformed_is_refused(path: str, body: dict[str, Any]) -> None:
    status, message = error(path, body)
    assert status == 400
    assert message


def test_the_version_is_told() -> None:
    assert httpx.get(f"{URL}/api/version").json()["version"][0].isdigit()


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_root_says_that_it_runs(method: str) -> None:
    response = httpx.request(method, f"{URL}/")
    assert response.status_code == 200
    assert response.text == ("Ollama is running" if method == "GET" else "")
