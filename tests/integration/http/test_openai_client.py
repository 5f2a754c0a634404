"""OpenAI's own client over HTTP against a real model: every route of Jan's API."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, cast

import jsonschema
import openai
import pytest
from gguf import GGUFReader

from tests.integration.http.support import N_CTX, serving_models
from tests.support.raw_http import post
from tests.support.served import Served

pytestmark = pytest.mark.integration

HELLO: Final[list[Any]] = [{"role": "user", "content": "Hello"}]
# Jan's fields that OpenAI's client does not know go into `extra_body`.
PLAIN: Final[dict[str, Any]] = {"temperature": 0, "extra_body": {"repeat_penalty": 1.0}}

Ask = Callable[[Callable[[Any], Any]], Any]
"""Pass the client to a function that calls it; returns the answer, a stream as the list of its events."""


def asking(server: Served, key: str = "any") -> Ask:
    """Ask with a client of its own."""

    def with_client(call: Callable[[Any], Any]) -> Any:
        with openai.OpenAI(base_url=f"{server.url()}/v1", api_key=key, max_retries=0) as client:
            answer = call(client)
            return list(cast(Any, answer)) if isinstance(answer, openai.Stream) else answer

    return with_client


@pytest.fixture
def ask(server: Served) -> Ask:
    return asking(server)


def chat(ask: Ask, **fields: Any) -> Any:
    fields = {"model": "exact-llama", "messages": HELLO, "max_tokens": 24, **PLAIN, **fields}
    return ask(lambda client: client.chat.completions.create(**fields))


def complete(ask: Ask, prompt: Any, **fields: Any) -> Any:
    fields = {"model": "exact-llama", "prompt": prompt, "max_tokens": 24, **PLAIN, **fields}
    return ask(lambda client: client.completions.create(**fields))


def embed(ask: Ask, texts: Any, model: str = "tiny-bert", **fields: Any) -> Any:
    return ask(lambda client: client.embeddings.create(model=model, input=texts, **fields))


def joined(events: list[Any]) -> str:
    """The joined text of a chat's stream."""
    return "".join(choice.delta.content or "" for event in events for choice in event.choices)


def stop_in(text: str) -> str:
    """A text of three ASCII characters that comes after the first few."""
    return next(text[i : i + 3] for i in range(8, len(text) - 3) if text[i : i + 3].isascii())


def test_chat(ask: Ask) -> None:
    reply = chat(ask)
    assert (reply.object, reply.model, len(reply.choices)) == ("chat.completion", "exact-llama", 1)
    [choice] = reply.choices
    assert (choice.message.role, choice.finish_reason, choice.logprobs) == ("assistant", "length", None)
    assert choice.message.content
    assert reply.usage.completion_tokens == 24
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + 24
    assert chat(ask).choices[0].message.content == choice.message.content


@pytest.mark.parametrize("include_usage", [True, False])
def test_chat_stream(ask: Ask, include_usage: bool) -> None:
    whole = chat(ask)
    events = chat(ask, stream=True, stream_options={"include_usage": include_usage})
    assert joined(events) == whole.choices[0].message.content
    assert events[0].choices[0].delta.role == "assistant"
    assert len({event.id for event in events}) == 1
    reasons = [choice.finish_reason for event in events for choice in event.choices if choice.finish_reason]
    assert reasons == ["length"]
    if include_usage:
        assert events[-1].choices == []
        assert events[-1].usage.total_tokens == whole.usage.total_tokens
    assert [event.usage for event in events[:-1] if event.usage] == []
    assert (events[-1].usage is not None) is include_usage


def test_choices_are_those_of_the_following_seeds(ask: Ask) -> None:
    def sampled(**fields: Any) -> list[str]:
        return [choice.message.content for choice in chat(ask, temperature=1.0, **fields).choices]

    three = sampled(n=3, seed=7)
    assert len(set(three)) == 3
    assert three == [text for seed in (7, 8, 9) for text in sampled(seed=seed)]
    events = chat(ask, temperature=1.0, n=3, seed=7, stream=True)
    streamed = ["", "", ""]
    for event in events:
        for choice in event.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert streamed == three


def test_chat_logprobs(ask: Ask) -> None:
    reply = chat(ask, logprobs=True, top_logprobs=3)
    tokens = reply.choices[0].logprobs.content
    assert len(tokens) == 24
    assert reply.usage.completion_tokens == 24
    joined = b"".join(bytes(token.bytes) for token in tokens)
    assert joined.decode(errors="replace") == reply.choices[0].message.content
    for token in tokens:
        assert len(token.top_logprobs) == 3
        # Greedy: the chosen token is the most likely one.
        assert token.logprob == token.top_logprobs[0].logprob <= 0
        assert token.bytes == token.top_logprobs[0].bytes
        assert sorted(token.top_logprobs, key=lambda top: -top.logprob) == token.top_logprobs
    events = chat(ask, logprobs=True, top_logprobs=3, stream=True)
    streamed = [
        token
        for event in events
        for choice in event.choices
        if choice.logprobs
        for token in choice.logprobs.content
    ]
    assert [token.bytes for token in streamed] == [token.bytes for token in tokens]
    # Equal up to rounding: the second prompt comes from the prefix cache.
    for mine, theirs in zip(streamed, tokens, strict=True):
        assert mine.logprob == pytest.approx(theirs.logprob, abs=1e-4)
        assert [top.bytes for top in mine.top_logprobs] == [top.bytes for top in theirs.top_logprobs]


SCHEMAS: Final[dict[str, Any]] = {
    "object": {
        "type": "object",
        "properties": {
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "kind": {"enum": ["a", "b"]},
        },
        "required": ["age", "kind"],
        "additionalProperties": False,
    },
    "array": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4},
    "text": {"type": "string", "pattern": "^[a-f]{3}$"},
    "either": {"anyOf": [{"const": "none"}, {"type": "integer", "minimum": 10, "maximum": 99}]},
    "reference": {
        "type": "object",
        "properties": {"at": {"$ref": "#/$defs/point"}},
        "required": ["at"],
        "additionalProperties": False,
        "$defs": {"point": {"type": "array", "prefixItems": [{"type": "integer"}] * 2, "items": False}},
    },
}


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("seed", [1, 2])
def test_an_answer_with_a_schema_is_valid(server: Served, name: str, seed: int) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": name, "schema": SCHEMAS[name], "strict": True}}
    fields: dict[str, Any] = {"temperature": 1.0, "seed": seed, "max_tokens": 400, "response_format": wanted}
    ask = asking(server)
    reply = chat(ask, **fields)
    assert reply.choices[0].finish_reason == "stop"
    jsonschema.validate(json.loads(reply.choices[0].message.content), SCHEMAS[name])
    assert joined(chat(ask, stream=True, **fields)) == reply.choices[0].message.content


def test_a_json_object(ask: Ask) -> None:
    reply = chat(ask, response_format={"type": "json_object"}, max_tokens=300, seed=4, temperature=1.0)
    if reply.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(reply.choices[0].message.content), dict)
    else:
        assert reply.choices[0].message.content.lstrip().startswith("{")


def test_stop_ends_the_text_at_its_earliest_occurrence(ask: Ask) -> None:
    whole = chat(ask).choices[0].message.content
    stop = stop_in(whole)
    reply = chat(ask, stop=["\x00absent", stop])
    assert reply.choices[0].message.content == whole[: whole.index(stop)]
    assert reply.choices[0].finish_reason == "stop"
    assert joined(chat(ask, stop=stop, stream=True)) == whole[: whole.index(stop)]


def test_ignore_eos_goes_on_where_the_text_would_end(ask: Ask, exact_llama: Path) -> None:
    eos = GGUFReader(exact_llama).fields["tokenizer.ggml.eos_token_id"].contents()
    biased: dict[str, Any] = {"logit_bias": {str(eos): 100}}
    ignoring = {"extra_body": {**PLAIN["extra_body"], "ignore_eos": True}}
    pairs = (
        (chat(ask, **biased), chat(ask, **biased, **ignoring)),
        (complete(ask, "hello", **biased), complete(ask, "hello", **biased, **ignoring)),
    )
    for ended, on in pairs:
        assert (ended.choices[0].finish_reason, ended.usage.completion_tokens) == ("stop", 0)
        assert (on.choices[0].finish_reason, on.usage.completion_tokens) == ("length", 24)


def test_a_seed_decides_the_text(ask: Ask) -> None:
    texts = [chat(ask, temperature=1.0, seed=seed).choices[0].message.content for seed in (11, 11, 12, 13)]
    assert texts[0] == texts[1]
    assert len(set(texts)) == 3


def test_content_parts_and_null_content_are_read(ask: Ask) -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
    assert chat(ask, messages=parts).choices[0].message.content == chat(ask).choices[0].message.content
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    history = [
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "42"},
    ]
    assert chat(ask, messages=history).choices[0].finish_reason == "length"


def test_completion(ask: Ask) -> None:
    reply = complete(ask, "hello")
    assert (reply.object, reply.choices[0].finish_reason) == ("text_completion", "length")
    events = complete(ask, "hello", stream=True, stream_options={"include_usage": True})
    texts = [choice.text for event in events for choice in event.choices]
    assert "".join(texts) == reply.choices[0].text
    assert events[-1].usage.total_tokens == reply.usage.total_tokens
    assert events[-1].usage.completion_tokens == reply.usage.completion_tokens


def test_prompts_are_choices_in_their_order(ask: Ask) -> None:
    prompts = ["hello", "the people", "hello"]
    alone = [complete(ask, prompt).choices[0].text for prompt in prompts]
    together = complete(ask, prompts)
    assert [choice.index for choice in together.choices] == [0, 1, 2]
    assert [choice.text for choice in together.choices] == alone
    assert together.usage.completion_tokens == 3 * 24


def test_token_arrays(server: Served, ask: Ask) -> None:
    ids = [
        post(server.url(), "/extras/tokenize", {"input": text}).json()["tokens"]
        for text in ("hello", "the people")
    ]
    texts = [complete(ask, text).choices[0].text for text in ("hello", "the people")]
    assert complete(ask, ids[0]).choices[0].text == texts[0]
    assert [choice.text for choice in complete(ask, ids).choices] == texts


def test_echo_with_logprobs(ask: Ask) -> None:
    ids = [65, 66, 67, 68]
    echoed = complete(ask, ids, echo=True, logprobs=4, max_tokens=3).choices[0]
    scores = echoed.logprobs
    counts = {
        len(getattr(scores, name)) for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")
    }
    assert counts == {len(ids) + 3}
    assert scores.token_logprobs[0] is None
    assert "".join(scores.tokens[:4]) == echoed.text[: scores.text_offset[4]]
    # The distribution at a position of the prompt is the one that generation draws from there.
    for place in (2, 3):
        drawn = complete(ask, ids[:place], logprobs=4, max_tokens=1).choices[0].logprobs
        for token, value in drawn.top_logprobs[0].items():
            assert scores.top_logprobs[place][token] == pytest.approx(value, abs=1e-4)
    plain = complete(ask, ids, max_tokens=3).choices[0].text
    assert echoed.text.endswith(plain)


def test_a_suffix_is_infilled_by_a_model_that_has_the_tokens(ask: Ask) -> None:
    plain, filled = complete(ask, "hello"), complete(ask, "hello", suffix=" people")
    assert filled.choices[0].text != plain.choices[0].text
    assert filled.usage.prompt_tokens > plain.usage.prompt_tokens + 2


def test_best_of_is_the_likeliest_of_its_candidates(ask: Ask) -> None:
    fields: dict[str, Any] = {"temperature": 1.0, "seed": 5, "logprobs": 0}
    candidates = complete(ask, "hello", n=4, **fields).choices
    mean = {
        choice.text: sum(choice.logprobs.token_logprobs) / len(choice.logprobs.token_logprobs)
        for choice in candidates
    }
    best = complete(ask, "hello", n=2, best_of=4, **fields)
    assert [choice.text for choice in best.choices] == sorted(mean, key=lambda text: -mean[text])[:2]
    assert [choice.index for choice in best.choices] == [0, 1]


@pytest.mark.parametrize("model", ["tiny-bert", "exact-llama"])
def test_embeddings_in_the_order_of_their_inputs(ask: Ask, model: str) -> None:
    texts = ["hello", "the people said that water was great", "a", "good house", "hello"]
    together = embed(ask, texts, model)
    assert [entry.index for entry in together.data] == list(range(5))
    alone = [embed(ask, text, model).data[0].embedding for text in texts[:4]]
    for entry, vector in zip(together.data, [*alone, alone[0]], strict=True):
        assert entry.embedding == pytest.approx(vector, abs=1e-4)
        assert math.hypot(*entry.embedding) == pytest.approx(1.0, abs=1e-5)
    assert alone[0] != pytest.approx(alone[1], abs=1e-2)
    assert together.usage.prompt_tokens == together.usage.total_tokens > 5


@pytest.mark.parametrize(("model", "limit"), [("tiny-bert", 256), ("exact-llama", N_CTX)])
def test_an_input_that_is_too_long_to_embed_is_a_bad_request(ask: Ask, model: str, limit: int) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        embed(ask, ["hello", "hello " * 2 * limit], model)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "input")
    assert f"maximum context length is {limit} tokens" in caught.value.message
    assert "input: item 1: " in caught.value.message


def test_encodings_and_dimensions_of_embeddings(ask: Ask) -> None:
    floats = embed(ask, ["hello", "water"], encoding_format="float").data
    packed = embed(ask, ["hello", "water"], encoding_format="base64").data  # as it came: no decoding
    default = embed(ask, ["hello", "water"]).data  # the client asks for base64 and decodes it
    short = embed(ask, ["hello", "water"], dimensions=8, encoding_format="float").data
    for whole, base64, decoded, cut in zip(floats, packed, default, short, strict=True):
        assert isinstance(base64.embedding, str)
        assert decoded.embedding == pytest.approx(whole.embedding, abs=1e-6)
        norm = math.hypot(*whole.embedding[:8])
        assert cut.embedding == pytest.approx([value / norm for value in whole.embedding[:8]], abs=1e-5)


def test_models(ask: Ask) -> None:
    listed = {model.id for model in ask(lambda client: client.models.list()).data}
    assert {"exact-llama", "tiny-bert"} <= listed
    assert ask(lambda client: client.models.retrieve("tiny-bert")).id == "tiny-bert"
    with pytest.raises(openai.NotFoundError) as caught:
        ask(lambda client: client.models.retrieve("no-such-model"))
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_does_not_fit_is_a_bad_request(ask: Ask, stream: bool) -> None:
    long = "hello " * 2 * N_CTX
    for call in (
        lambda: complete(ask, long, stream=stream),
        lambda: chat(ask, messages=[{"role": "user", "content": long}], stream=stream),
    ):
        with pytest.raises(openai.BadRequestError) as caught:
            call()
        assert (caught.value.code, caught.value.type) == ("context_length_exceeded", "invalid_request_error")
        assert str(N_CTX) in caught.value.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"top_p": 7}, "top_p"), ({"stream": "yes"}, "stream"), ({"presence_penalty": -3}, "presence_penalty")],
)
def test_a_violation_of_the_schema_is_unprocessable(ask: Ask, fields: dict[str, Any], param: str) -> None:
    extra = {"extra_body": fields}
    for call in (lambda: complete(ask, "a", **extra), lambda: chat(ask, **extra)):
        with pytest.raises(openai.UnprocessableEntityError) as caught:
            call()
        assert caught.value.param == param


def test_an_image_is_refused_by_a_text_model(ask: Ask) -> None:
    image = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/never-fetched.png"}}
    with pytest.raises(openai.BadRequestError) as caught:
        chat(ask, messages=[{"role": "user", "content": [image]}])
    assert caught.value.code == "unsupported_content"


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory, exact_llama: Path) -> Iterator[Served]:
    flags = ("--n-ctx", "128", "--api-key", "correct-horse")
    with serving_models(tmp_path_factory.mktemp("locked"), exact_llama, flags=flags) as served:
        yield served


def test_a_key_is_asked_for_on_every_route(locked: Served) -> None:
    calls: list[Callable[[Ask], Any]] = [
        chat,
        lambda ask: chat(ask, stream=True),
        lambda ask: complete(ask, "hello"),
        lambda ask: embed(ask, "hello", "exact-llama"),
        lambda ask: ask(lambda client: client.models.list()),
    ]
    for call in calls:
        with pytest.raises(openai.AuthenticationError) as caught:
            call(asking(locked, "wrong-battery"))
        assert caught.value.status_code == 401
        assert call(asking(locked, "correct-horse"))
    for key in ("correct-horse", "wrong-battery"):
        assert key not in locked.log
