"""What the proxy reads in requests, and the headers that it passes on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jan_serve.dialects.outline import Outline
from jan_serve.dialects.outlines import ANTHROPIC, DECISIONS, LMDEPLOY, OLLAMA, OPENAI, TGI
from jan_serve.errors import InvalidRequest
from jan_serve.fleet.prefixes import NO_KEYS, PromptKeys
from jan_serve.proxy.request_facts import (
    HOPS,
    MAX_MODEL,
    NODE,
    Headers,
    RequestFacts,
    hops_of,
    keys_of,
    read_facts,
    to_client,
    to_node,
)


def facts_of(body: bytes) -> RequestFacts:
    return read_facts(json.loads(body), body)


def keys(body: dict[str, Any], outline: Outline = OPENAI) -> PromptKeys:
    return keys_of(facts_of(json.dumps(body).encode()), outline, b"salt")


@pytest.mark.parametrize(("stream", "streams"), [('"true"', True), ('"0"', False), ("1", True)])
def test_a_stream_may_be_asked_for_as_lmdeploys_clients_do(stream: str, streams: bool) -> None:
    assert facts_of(b'{"stream": %b}' % stream.encode()).stream is streams


def test_model_stream_and_the_response_that_is_continued() -> None:
    facts = facts_of(b'{"model": "m", "stream": true, "previous_response_id": "resp_1"}')
    assert (facts.model, facts.stream, facts.previous) == ("m", True, "resp_1")
    facts = facts_of(b'{"model": null, "stream": null, "previous_response_id": 1}')
    assert (facts.model, facts.stream, facts.previous) == (None, False, None)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"[]", None),
        (b'{"model": 1}', "model"),
        (b'{"model": ""}', "model"),
        (b'{"model": "%b"}' % (b"x" * (MAX_MODEL + 1)), "model"),
        (b'{"stream": 2}', "stream"),
        (b'{"stream": "maybe"}', "stream"),
        (b'{"migration_request": {"a": 1}}', "migration_request"),
        (b'{"with_cache": true}', "with_cache"),
        (b'{"preserve_cache": true}', "preserve_cache"),
        (b'{"model": "a", "model": "b"}', "model"),
        (b'{"stream": true, "\\u0073tream": false}', "stream"),
        (b'{"\\u006dodel": "a", "n": 1, "model": "b"}', "model"),
    ],
)
def test_wrong_bodies(body: bytes, param: str | None) -> None:
    with pytest.raises(InvalidRequest) as caught:
        facts_of(body)
    assert caught.value.param == param


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "a", "metadata": {"model": "b"}}',
        b'{"model": "a", "messages": [{"content": "\\"model\\": \\"b\\""}]}',
        b'{"model": "a", "tools": [{"model": "x"}, {"model": "y"}]}',
        b'{"with_cache": false, "migration_request": null}',
        b'{"caf\\u0065": 1}',
    ],
)
def test_names_within_other_members_do_not_count(body: bytes) -> None:
    assert facts_of(body).model in ("a", None)


LONG = "words " * 200


MARK = {"cache_control": {"type": "ephemeral"}}
MARKED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"role": "user", "content": LONG}, {"role": "user", "content": LONG, **MARK}),
    (
        {"role": "user", "content": [{"type": "text", "text": LONG}]},
        {"role": "user", "content": [{"type": "text", "text": LONG, **MARK}]},
    ),
]


def billed(system: str) -> list[dict[str, Any]]:
    """The places of a system prompt."""
    return [
        {"system": system},
        {"system": [{"type": "text", "text": system}]},
        {"messages": [{"role": "system", "content": system}]},
    ]


SAME: list[tuple[Outline, dict[str, Any], dict[str, Any]]] = [
    *(
        (outline, {"messages": [message]}, {"messages": [marked]})
        for outline in (OPENAI, ANTHROPIC, OLLAMA)
        for message, marked in MARKED
    ),
    (OPENAI, {"prompt": LONG, "temperature": 0.1}, {"prompt": LONG, "temperature": 0.9, "stream": True}),
    (ANTHROPIC, {"system": LONG, "messages": []}, {"messages": [], "system": LONG}),
    *(
        (ANTHROPIC, first, second)
        for first, second in zip(
            *(billed(f"x-anthropic-billing-header: cch={n};\n{LONG}") for n in (1, 2)), strict=True
        )
    ),
]


@pytest.mark.parametrize(("outline", "body", "same"), SAME)
def test_what_changes_nothing_in_a_prompt_changes_no_key(
    outline: Outline, body: dict[str, Any], same: dict[str, Any]
) -> None:
    assert keys(body, outline) == keys(same, outline) != NO_KEYS
    assert keys(body, outline).keys


def test_the_billing_line_is_one_protocols() -> None:
    one, other = (billed(f"x-anthropic-billing-header: cch={n};\n{LONG}")[-1] for n in (1, 2))
    assert keys(one).keys != keys(other).keys


@pytest.mark.parametrize(
    "other",
    [
        {"model": "n", "prompt": LONG},
        {"model": "m", "prompt": "x" + LONG},
        {"model": "m", "tools": [{"name": LONG}], "prompt": LONG},
    ],
)
def test_another_prompt_or_model_has_other_keys(other: dict[str, Any]) -> None:
    assert keys({"model": "m", "prompt": LONG}).keys[0] != keys(other).keys[0]


def test_a_longer_conversation_keeps_its_keys() -> None:
    first = [{"role": "user", "content": LONG}]
    more = [*first, {"role": "assistant", "content": LONG}, {"role": "user", "content": "And?"}]
    short, long = keys({"messages": first}), keys({"messages": more})
    assert long.keys[: len(short.keys)] == short.keys
    assert len(long.keys) > len(short.keys)


def test_a_body_without_a_prompt_has_no_keys() -> None:
    assert keys({"model": "m", "messages": None}) is NO_KEYS


def test_token_ids_and_objects_are_prompts_too() -> None:
    assert keys({"input_ids": list(range(1000))}, LMDEPLOY).keys
    assert keys({"prompt": {"parts": [{"text": LONG}]}}).keys


@pytest.mark.parametrize(
    ("outline", "names"),
    [
        (OPENAI, "instructions messages prompt input"),
        (ANTHROPIC, "system messages"),
        (OLLAMA, "system messages prompt input"),
        (TGI, "messages prompt inputs"),
        (DECISIONS, "instructions state"),
    ],
)
def test_prompts_of_each_protocol(outline: Outline, names: str) -> None:
    for name in names.split():
        assert keys({name: LONG}, outline).keys, name


def test_a_node_gets_neither_keys_nor_cookies_nor_the_headers_of_one_connection() -> None:
    headers: Headers = [
        (b"host", b"proxy"),
        (b"content-type", b"application/json"),
        (b"authorization", b"Bearer clients"),
        (b"x-api-key", b"clients"),
        (b"cookie", b"a=b"),
        (b"sec-fetch-site", b"none"),
        (b"x-forwarded-for", b"1.2.3.4"),
        (b"x-jan-serve-hops", b"0"),
        (b"x-jan-serve-caller", b"another client"),
        (b"x-trace", b"1"),
        (b"x-private", b"2"),
        (b"connection", b"keep-alive, X-Private"),
    ]
    assert to_node(headers, "10.0.0.7", 1, "nodes") == [
        (b"content-type", b"application/json"),
        (b"x-trace", b"1"),
        (HOPS, b"1"),
        (b"x-forwarded-for", b"10.0.0.7"),
        (b"authorization", b"Bearer nodes"),
    ]


def test_a_node_learns_whom_a_request_is_for_where_there_are_several_keys() -> None:
    claimed: Headers = [(b"x-jan-serve-caller", b"another client")]
    assert to_node(claimed, None, 1, None, "c4") == [(HOPS, b"1"), (b"x-jan-serve-caller", b"c4")]


def test_a_node_without_a_key_and_a_client_without_an_address() -> None:
    assert to_node([], None, 3, None) == [(HOPS, b"3")]


def test_a_client_gets_neither_cookies_nor_permissions_of_a_node() -> None:
    headers: Headers = [
        (b"content-type", b"text/event-stream"),
        (b"content-length", b"3"),
        (b"set-cookie", b"a=b"),
        (b"server", b"x"),
        (b"access-control-allow-origin", b"*"),
        (b"x-jan-serve-node", b"another"),
        (b"x-once", b"1"),
        (b"connection", b"x-once"),
    ]
    assert to_client(headers, "10.0.0.9:8000") == [
        (b"content-type", b"text/event-stream"),
        (b"content-length", b"3"),
        (NODE, b"10.0.0.9:8000"),
    ]


@pytest.mark.parametrize(
    ("value", "passed"),
    [
        (b"5", b"5"),
        (b"3600", b"3600"),
        (b"3601", b"3600"),
        (b"9" * 5000, b"3600"),
        (b"Wed, 21 Oct 2026 07:28:00 GMT", b"Wed, 21 Oct 2026 07:28:00 GMT"),
    ],
)
def test_a_node_cannot_make_clients_wait_for_days(value: bytes, passed: bytes) -> None:
    assert to_client([(b"retry-after", value)], "n")[0] == (b"retry-after", passed)


@pytest.mark.parametrize(
    ("values", "hops"),
    [
        ([], 0),
        ([b"0"], 0),
        ([b"7"], 7),
        ([b"-1"], 1000),
        ([b""], 1000),
        ([b"1", b"1"], 1000),
        ([b"1" * 4], 1000),
        ([b"\xb2"], 1000),
    ],
)
def test_hops_that_no_proxy_writes_count_as_many(values: list[bytes], hops: int) -> None:
    assert hops_of([(HOPS, value) for value in values]) == hops
