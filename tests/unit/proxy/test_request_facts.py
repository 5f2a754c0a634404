"""What the proxy reads in a request, and which prompts count as the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jan_serve.dialects.outline import Outline
from jan_serve.dialects.outlines import ANTHROPIC, DECISIONS, LMDEPLOY, OLLAMA, OPENAI, TGI
from jan_serve.errors import InvalidRequest
from jan_serve.fleet.prefixes import NO_KEYS, PromptKeys
from jan_serve.proxy.request_facts import MAX_MODEL, RequestFacts, keys_of, read_facts


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
