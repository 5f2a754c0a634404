"""What Kimi's vendor verifier checks, written anew from its description.

Arguments of forced calls against schemas of Moonshot's flavour, whole and streamed; the form of streams; fields of K3.
Runs in the environment of the clients, against the server of JAN_SERVE_URL.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

import httpx
import jsonschema
import pytest

URL = os.environ["JAN_SERVE_URL"] + "/v1/chat/completions"
MODEL = "jan-tiny"
OBJECT: dict[str, Any] = {"type": "object", "additionalProperties": False}
STRING, NUMBER, INTEGER = {"type": "string"}, {"type": "number"}, {"type": "integer"}


def closed(required: bool = True, **properties: Any) -> dict[str, Any]:
    return {**OBJECT, "properties": properties, **({"required": list(properties)} if required else {})}


def named(*names: str, **more: Any) -> dict[str, Any]:
    return {**OBJECT, "properties": dict.fromkeys(names, STRING), "required": list(names), **more}


PAIR = {"type": "array", "items": INTEGER, "maxItems": 2}
NODE = closed(value=NUMBER, next={"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]})
STEP = closed(explanation=STRING, output=STRING)
POSTAL = {"type": "object", "properties": {"code": STRING, "country": STRING}, "required": ["code"]}
SCHEMAS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "object": {"type": "object"},
    "no members": OBJECT,
    "no members, listed": {**OBJECT, "properties": {}},
    "open": {"type": "object", "additionalProperties": True},
    "string": closed(value=STRING),
    "number": closed(value=NUMBER),
    "integer": closed(value=INTEGER),
    "boolean": closed(value={"type": "boolean"}),
    "null": closed(value={"type": "null"}),
    "array": closed(value={"type": "array"}),
    "several types": closed(value={"type": ["string", "null"]}),
    "many types": closed(value={"type": ["string", "null", "number", "boolean", "object"]}),
    "optional": closed(required=False, first=STRING, second=INTEGER),
    "some required": {**closed(required=False, a=STRING, b=STRING, c=STRING), "required": ["a", "c"]},
    "required beside others": {"type": "object", "properties": {"a": STRING}, "required": ["a"]},
    "description": {**closed(value={**STRING, "description": 'A "quoted" text\n{with} <marks>'})},
    "default": closed(value={**INTEGER, "default": 10}),
    "title": {**closed(value=STRING), "title": "A title", "$comment": "a comment"},
    "spaces in names": named("first name", " ", " H"),
    "slashes in names": named("first/name", "a/b/c"),
    "quotes in names": named('a "b"', "c\\d", "e\nf"),
    "unicode names": named("城市", "😊abc", "🧑🏾‍🤝‍🧑🏾"),
    "numbers as names": named("111", "3.55"),
    "names that begin alike": named("a", "abc", "abcd", "abcde"),
    "enum": closed(value={"enum": ["red", "green"]}),
    "enum of strings": closed(value={**STRING, "enum": ["3.1", "", " a", "200"]}),
    "enum of blanks": closed(value={**STRING, "enum": ["\n", "\t", "\\", " true", "\r\n"]}),
    "enum of integers": closed(value={**INTEGER, "enum": [-2, -22, 0, 7]}),
    "enum of numbers": closed(value={**NUMBER, "enum": [100, 3.25, 6.6e8]}),
    "enum of booleans": closed(value={"type": "boolean", "enum": [True]}),
    "enum of null": closed(value={"enum": [None]}),
    "long enum": closed(value={**STRING, "enum": [f"value-{n}" for n in range(60)]}),
    "const": closed(value={"const": "only"}),
    "range": closed(value={**NUMBER, "minimum": -1.5, "maximum": 2.5}),
    "open range": closed(value={**INTEGER, "exclusiveMinimum": 0, "exclusiveMaximum": 10}),
    "range on one side": closed(value={**INTEGER, "maximum": -3}),
    "step": closed(value={**INTEGER, "multipleOf": 5, "minimum": 0, "maximum": 50}),
    "lengths": closed(value={**STRING, "minLength": 2, "maxLength": 4}),
    "pattern": closed(value={**STRING, "pattern": "^[A-Z]{2}-[0-9]{3}$"}),
    "format": closed(value={**STRING, "format": "date"}),
    "items": closed(value={"type": "array", "items": STRING, "maxItems": 3}),
    "number of items": closed(value={"type": "array", "items": INTEGER, "minItems": 2, "maxItems": 3}),
    "items of arrays": closed(value={"type": "array", "items": PAIR, "maxItems": 2}),
    "items of objects": closed(value={"type": "array", "items": STEP, "maxItems": 2}),
    "other members of a type": {"type": "object", "additionalProperties": INTEGER},
    "other members beside listed": {
        "type": "object",
        "properties": {"x": STRING},
        "required": ["x"],
        "additionalProperties": {"enum": ["hello", "hi"]},
    },
    "other members of objects": {"type": "object", "additionalProperties": named("data")},
    "any of values": closed(value={"anyOf": [STRING, {"type": "array", "items": STRING}]}),
    "any of constants": closed(value={"anyOf": [{"enum": ["red"]}, {"enum": ["green"]}, {"type": "null"}]}),
    "any of objects": closed(value={"anyOf": [closed(circle=NUMBER), closed(width=NUMBER, height=NUMBER)]}),
    "any of at the top": {"type": "object", "anyOf": [closed(foo=STRING), closed(bar=NUMBER)]},
    "any of arrays": closed(value={"type": "array", "items": {"anyOf": [STRING, INTEGER, OBJECT]}, "maxItems": 3}),
    "one of": closed(value={"oneOf": [closed(a=INTEGER), closed(b=INTEGER)]}),
    "all of": closed(value={"allOf": [{"minimum": 3}, {**INTEGER, "maximum": 9}]}),
    "nested": closed(a=closed(b=closed(c=closed(d=INTEGER)))),
    "definitions": {**closed(steps={"$ref": "#/$defs/step"}), "$defs": {"step": STEP}},
    "definitions in definitions": {
        **closed(address={"$ref": "#/$defs/address"}),
        "$defs": {"address": closed(city=STRING, postal={"$ref": "#/$defs/postal"}), "postal": POSTAL},
    },
    "old definitions": {**closed(value={"$ref": "#/definitions/v"}), "definitions": {"v": INTEGER}},
    "recursion": {**closed(list={"$ref": "#/$defs/node"}), "$defs": {"node": NODE}},
    "recursion to the root": closed(
        value=INTEGER, child={"anyOf": [{"$ref": "#"}, {"type": "null"}]}
    ),
    "names by id": {
        "$id": "https://example.com/root",
        **closed(value={"$ref": "#/$defs/v"}),
        "$defs": {"v": {"enum": ["x", "y"]}},
    },
    "escaped reference": {**closed(v={"$ref": "#/$defs/a~1b"}), "$defs": {"a/b": INTEGER}},
}  # fmt: skip


def ask(messages: list[Any] | str, **fields: Any) -> dict[str, Any]:
    turns = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    return {"model": MODEL, "messages": turns, **fields}


def whole(body: dict[str, Any]) -> dict[str, Any]:
    response = httpx.post(URL, json=body, timeout=120)
    assert response.status_code == 200, response.text
    return response.json()


def chunks(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The chunks of a stream, whose lines and last line are checked. Comments and ids are no chunks."""
    with httpx.stream("POST", URL, json={**body, "stream": True}, timeout=120) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line and not line.startswith((":", "id: "))]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def joined_calls(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    for part in parts:
        for choice in part["choices"]:
            for call in choice["delta"].get("tool_calls", ()):
                if call["index"] == len(calls):
                    assert call["type"] == "function"
                    assert call["id"]
                    calls.append({"name": call["function"]["name"], "arguments": ""})
                calls[call["index"]]["arguments"] += call["function"]["arguments"]
    return calls


def text_of(parts: list[dict[str, Any]], field: str = "content") -> str:
    return "".join(c["delta"].get(field) or "" for part in parts for c in part["choices"])


def tool(parameters: dict[str, Any], name: str = "record") -> dict[str, Any]:
    function = {"name": name, "description": "Records what is said", "parameters": parameters}
    return {"type": "function", "function": function}


WEATHER = tool(closed(city=STRING), "get_weather")
FORCED: dict[str, Any] = ask("The weather in Oslo?", tools=[WEATHER], tool_choice="required")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("kind", SCHEMAS)
def test_arguments_fit_the_schema(kind: str, stream: bool) -> None:
    body = ask(
        "Call the tool once.", tools=[tool(SCHEMAS[kind])], tool_choice="required", max_tokens=2048,
        thinking={"type": "disabled"}, temperature=0,
    )  # fmt: skip
    if stream:
        calls = joined_calls(chunks(body))
    else:
        choice = whole(body)["choices"][0]
        assert choice["finish_reason"] == "tool_calls"
        calls = [call["function"] for call in choice["message"]["tool_calls"]]
    assert calls
    for call in calls:
        assert call["name"] == "record"
        jsonschema.Draft202012Validator(SCHEMAS[kind]).validate(json.loads(call["arguments"]))


STREAMS: dict[str, dict[str, Any]] = {
    "text": ask("Hello!", max_tokens=64),
    "thought": ask("Think: what is 2+3?", thinking={"type": "enabled"}, max_tokens=256),
    "call": FORCED,
    "cut": ask("Tell me a story.", max_tokens=3),
    "usage": ask("Hello!", stream_options={"include_usage": True}),
    "two answers": ask("Hello!", n=2, max_tokens=32),
    "log-probabilities": ask("Hello!", logprobs=True, top_logprobs=2, max_tokens=16),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_fields_at_the_top_stay_the_same(kind: str) -> None:
    parts = chunks(STREAMS[kind])
    assert {part["object"] for part in parts} == {"chat.completion.chunk"}
    assert len({(part["id"], part["created"], part["model"]) for part in parts}) == 1
    assert isinstance(parts[0]["created"], int)


@pytest.mark.parametrize("kind", STREAMS)
def test_each_choice_begins_with_its_role_and_ends_once(kind: str) -> None:
    parts = chunks(STREAMS[kind])
    for index in range(STREAMS[kind].get("n", 1)):
        choices = [c for part in parts for c in part["choices"] if c["index"] == index]
        assert choices[0]["delta"]["role"] == "assistant"
        assert "content" in choices[0]["delta"]
        assert not any("role" in choice["delta"] for choice in choices[1:])
        reasons = [choice["finish_reason"] for choice in choices]
        assert reasons[-1] in ("stop", "length", "tool_calls")
        assert set(reasons[:-1]) == {None}
        assert choices[-1]["delta"] == {}


@pytest.mark.parametrize("kind", STREAMS)
def test_a_chunk_has_one_kind_of_text(kind: str) -> None:
    for part in chunks(STREAMS[kind]):
        for choice in part["choices"]:
            filled = [f for f in ("content", "reasoning_content", "tool_calls") if choice["delta"].get(f)]
            assert len(filled) <= 1


def test_a_thought_is_text_apart() -> None:
    parts = chunks(STREAMS["thought"])
    assert text_of(parts, "reasoning_content")
    assert "<think>" not in text_of(parts)


def test_later_parts_of_a_call_have_its_index_and_arguments() -> None:
    parts = chunks(FORCED)
    pieces = [call for part in parts for c in part["choices"] for call in c["delta"].get("tool_calls", ())]
    assert set(pieces[0]) >= {"index", "id", "type", "function"}
    assert set(pieces[0]["function"]) == {"name", "arguments"}
    for piece in pieces[1:]:
        assert set(piece) == {"index", "function"}
        assert set(piece["function"]) == {"arguments"}


def test_indexes_of_calls_never_go_back() -> None:
    both = ask("The weather in Oslo and in Rome?", tools=[WEATHER], tool_choice="required")
    parts = chunks(both)
    indexes = [
        call["index"] for part in parts for c in part["choices"] for call in c["delta"].get("tool_calls", ())
    ]
    assert indexes == sorted(indexes)
    assert set(indexes) == set(range(len(set(indexes))))


def test_streamed_characters_are_whole() -> None:
    body = ask("Say it.", grammar='root ::= "日本語 🧑🏾‍🤝‍🧑🏾 é"')
    assert text_of(chunks(body)) == "日本語 🧑🏾‍🤝‍🧑🏾 é"


USAGE = {"prompt_tokens", "completion_tokens", "total_tokens"}


def test_the_last_chunk_has_the_usage() -> None:
    *parts, last = chunks(STREAMS["usage"])
    assert last["choices"] == []
    assert set(last["usage"]) >= USAGE
    assert last["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0
    assert isinstance(last["usage"]["prompt_tokens_details"]["cached_tokens"], int)
    assert all(part["usage"] is None for part in parts)


def test_usage_is_not_sent_unasked() -> None:
    assert all(part["choices"] for part in chunks(STREAMS["text"]))


def test_the_chunk_that_ends_a_choice_has_its_usage() -> None:
    last = [part for part in chunks(STREAMS["text"]) if part["choices"]][-1]
    assert set(last["choices"][0]["usage"]) >= USAGE


def test_ids_are_as_kimis_own() -> None:
    parts = chunks(FORCED)
    assert re.fullmatch("chatcmpl-[0-9a-f]{24}", parts[0]["id"])


def test_ids_of_calls_are_name_and_number() -> None:
    [call] = whole(FORCED)["choices"][0]["message"]["tool_calls"]
    assert re.fullmatch("(functions[.])?get_weather[:_]0", call["id"])


def test_tokens_are_shown_on_request() -> None:
    parts = chunks({**STREAMS["text"], "include_internal_content": True})
    assert any("token_ids" in json.dumps(part) for part in parts)


def test_log_probabilities_have_their_form() -> None:
    entries = [
        entry
        for part in chunks(STREAMS["log-probabilities"])
        for choice in part["choices"]
        for entry in (choice["logprobs"] or {"content": []})["content"]
    ]
    assert entries
    for entry in entries:
        assert set(entry) == {"token", "logprob", "bytes", "top_logprobs"}
        assert len(entry["top_logprobs"]) == 2


def test_a_stop_text_ends_the_stream() -> None:
    body = ask("Say it.", grammar='root ::= "one two three"', stop=[" three"])
    parts = chunks(body)
    assert text_of(parts) == "one two"
    assert parts[-1]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("wrong", [
    {"messages": []},
    {"temperature": "hot"},
    {"tools": [{"type": "function", "function": {"description": "no name"}}]},
    {"tools": [tool({"type": "hiccup"})]},
    {"tools": [tool({"$ref": "#/$defs/absent"})]},
    {"tool_choice": "required"},
    {"tool_choice": {"type": "function", "function": {"name": "absent"}}, "tools": [WEATHER]},
    {"response_format": {"type": "sound"}},
    {"response_format": {"type": "json_schema"}},
], ids=[
    "no messages", "temperature", "tool without a name", "type of a schema", "reference of a schema", "no tools",
    "unknown tool", "form of answers", "no schema",
])  # fmt: skip
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_what_is_malformed_is_refused_before_the_stream(wrong: dict[str, Any], stream: bool) -> None:
    response = httpx.post(URL, json={**ask("Hello!"), "stream": stream, **wrong}, timeout=60)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["message"]


@pytest.mark.parametrize("choice, expected", [
    ("none", 0), ("required", 1), ({"type": "function", "function": {"name": "get_weather"}}, 1),
])  # fmt: skip
def test_tool_choice_is_honoured(choice: Any, expected: int) -> None:
    tools = [WEATHER, tool(closed(text=STRING), "note")]
    message = whole({**FORCED, "tools": tools, "tool_choice": choice})["choices"][0]["message"]
    assert bool(message.get("tool_calls")) == bool(expected)
    if isinstance(choice, dict):
        assert {call["function"]["name"] for call in message["tool_calls"]} == {"get_weather"}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("kind", ["json_object", "json_schema"])
def test_response_format_is_honoured(kind: str, stream: bool) -> None:
    schema = closed(city=STRING)
    form = {"type": kind, "json_schema": {"name": "city", "strict": True, "schema": schema}}
    body = ask(
        "A city as JSON", max_tokens=512, response_format=form if kind == "json_schema" else {"type": kind}
    )
    text = text_of(chunks(body)) if stream else whole(body)["choices"][0]["message"]["content"]
    jsonschema.validate(json.loads(text), schema if kind == "json_schema" else {"type": "object"})


@pytest.mark.parametrize("thinking", [
    {"thinking": {"type": "enabled"}},
    {"thinking": {"type": "enabled", "keep": "all", "effort": "low"}},
    {"thinking": {"type": "enabled", "effort": "max"}},
    {"chat_template_kwargs": {"thinking": True}},
    {"chat_template_kwargs": {"thinking": True, "preserve_thinking": True, "thinking_effort": "high"}},
    {"reasoning_effort": "low"}, {"reasoning_effort": "high"}, {"reasoning_effort": "max"},
], ids=json.dumps)  # fmt: skip
def test_thinking_is_switched_on(thinking: dict[str, Any]) -> None:
    message = whole(ask("What is 2+3?", temperature=0, **thinking))["choices"][0]["message"]
    assert message["reasoning_content"]
    assert message["content"]


@pytest.mark.parametrize("thinking", [
    {"thinking": {"type": "disabled"}}, {"chat_template_kwargs": {"thinking": False}}, {"reasoning_effort": "none"},
], ids=json.dumps)  # fmt: skip
def test_thinking_is_switched_off(thinking: dict[str, Any]) -> None:
    message = whole(ask("What is 2+3?", temperature=0, **thinking))["choices"][0]["message"]
    assert not message.get("reasoning_content")
    assert message["content"]


def test_tools_are_declared_in_a_message() -> None:
    turns = [{"role": "system", "tools": [WEATHER]}, {"role": "user", "content": "The weather in Oslo?"}]
    message = whole(ask(turns, tool_choice="required"))["choices"][0]["message"]
    assert message["tool_calls"][0]["function"]["name"] == "get_weather"


@pytest.mark.parametrize("field, value", [
    ("temperature", 0.5), ("top_p", 0.8), ("presence_penalty", 0.5), ("frequency_penalty", 0.5), ("n", 2),
])  # fmt: skip
def test_values_of_sampling_other_than_kimis_are_refused(field: str, value: float) -> None:
    response = httpx.post(URL, json=ask("Hello!", **{field: value}), timeout=60)
    assert response.status_code == 400


@pytest.mark.parametrize("field, value", [
    ("temperature", 1.0), ("top_p", 0.95), ("presence_penalty", 0), ("frequency_penalty", 0), ("n", 1),
])  # fmt: skip
def test_kimis_values_of_sampling_are_accepted(field: str, value: float) -> None:
    assert whole(ask("Hello!", **{field: value}))["choices"]


def test_a_repeated_prompt_has_the_same_number_of_tokens() -> None:
    counts = set()
    for stream in (False, True):
        body = ask("Hello!", stream_options={"include_usage": True}) if stream else ask("Hello!")
        usage = chunks(body)[-1]["usage"] if stream else whole(body)["usage"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        counts.add(usage["prompt_tokens"])
    assert len(counts) == 1
