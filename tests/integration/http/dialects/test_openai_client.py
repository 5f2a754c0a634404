"""OpenAI's own client over HTTP against a real model: every route of Jan's API."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, cast

import openai
import pytest

from tests.integration.http.support import N_CTX
from tests.support.clients.raw_http import post
from tests.support.servers.served import Served

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


def test_stop_ends_the_text_at_its_earliest_occurrence(ask: Ask) -> None:
    whole = chat(ask).choices[0].message.content
    stop = stop_in(whole)
    reply = chat(ask, stop=["\x00absent", stop])
    assert reply.choices[0].message.content == whole[: whole.index(stop)]
    assert reply.choices[0].finish_reason == "stop"
    assert joined(chat(ask, stop=stop, stream=True)) == whole[: whole.index(stop)]


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
