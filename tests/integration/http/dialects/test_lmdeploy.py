"""LMDeploy's api_server with a real model: behaviour beyond its documents, and counts that have to agree."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from jan_serve.resources import builtin_model
from tests.integration.http.support import ENDLESS, LONG_CTX, metric, payloads, serving_models
from tests.support.clients.raw_http import RawResponse, connect, get, post, post_bytes
from tests.support.gguf.models import tiny_judge as tiny_judge
from tests.support.gguf.models import tiny_reranker as tiny_reranker
from tests.support.processes import wait_until

pytestmark = pytest.mark.integration

MODEL = "jan-tiny"
HELLO = "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n"
GREEDY: dict[str, Any] = {"temperature": 0}
CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hello!"}], **GREEDY}


@pytest.fixture(scope="module")
def url(
    tmp_path_factory: pytest.TempPathFactory, tiny_bert: Path, tiny_reranker: Path, tiny_judge: Path
) -> Generator[str]:
    model = builtin_model()
    assert model is not None
    folder = tmp_path_factory.mktemp("lmdeploy")
    with serving_models(
        folder, model, tiny_bert, tiny_reranker, tiny_judge, flags=("--n-ctx", str(LONG_CTX))
    ) as server:
        yield server.url()


def generate(url: str, **fields: Any) -> RawResponse:
    return post(url, "/lmdeploy/generate", {"prompt": HELLO, **GREEDY, **fields})


def generated(url: str, **fields: Any) -> dict[str, Any]:
    reply = generate(url, **fields)
    assert reply.status == 200, reply.body
    return reply.json()


def events_of(reply: RawResponse) -> list[dict[str, Any]]:
    """All but the end mark, which has to be last."""
    found = payloads(reply.body)
    assert found[-1] == "[DONE]"
    return [json.loads(event) for event in found[:-1]]


def chat(url: str, **fields: Any) -> dict[str, Any]:
    reply = post(url, "/lmdeploy/v1/chat/completions", CHAT | fields)
    assert reply.status == 200, reply.body
    return reply.json()


def assert_counts_agree(body: dict[str, Any]) -> None:
    meta = body["meta_info"]
    pairs = meta["output_token_logprobs"]
    assert meta["completion_tokens"] == len(body["output_ids"]) == len(pairs)
    assert [pair[1] for pair in pairs] == body["output_ids"]
    assert all(pair[0] <= 0 for pair in pairs)


@pytest.mark.parametrize(
    "fields", [{}, {"include_stop_str_in_output": True}, {"max_tokens": 3}, {"stop": "e"}]
)
def test_ids_pairs_and_counts_agree_whole_and_streamed(url: str, fields: dict[str, Any]) -> None:
    body = generated(url, return_logprob=True, **fields)
    assert_counts_agree(body)
    events = events_of(generate(url, return_logprob=True, stream=True, **fields))
    assert "".join(event["text"] for event in events) == body["text"]
    assert [token for event in events for token in event["output_ids"]] == body["output_ids"]
    assert [event["meta_info"]["finish_reason"] for event in events[:-1]] == [None] * (len(events) - 1)
    assert events[-1]["meta_info"]["finish_reason"] == body["meta_info"]["finish_reason"]
    assert events[-1]["meta_info"]["completion_tokens"] == body["meta_info"]["completion_tokens"]
    if "include_stop_str_in_output" not in fields:
        assert (events[-1]["text"], events[-1]["output_ids"]) == ("", [])


def test_the_end_token_is_shown_where_it_is_included(url: str) -> None:
    plain, shown = generated(url), generated(url, include_stop_str_in_output=True)
    assert plain["meta_info"]["finish_reason"] == {"type": "stop"}
    assert shown["text"] == plain["text"] + "<|im_end|>"
    assert shown["output_ids"][:-1] == plain["output_ids"]
    assert shown["meta_info"]["completion_tokens"] == plain["meta_info"]["completion_tokens"] + 1


def test_ids_and_text_are_the_same_prompt(url: str) -> None:
    ids = post(url, "/v1/encode", {"input": HELLO}).json()["input_ids"]
    assert generated(url, prompt=None, input_ids=ids) == generated(url)


def test_nothing_ends_a_text_that_ignores_the_end(url: str) -> None:
    body = generated(url, ignore_eos=True, max_tokens=40, stop="e")
    assert body["meta_info"]["finish_reason"] == {"type": "length"}
    assert body["meta_info"]["completion_tokens"] == 40


def test_stop_tokens(url: str) -> None:
    whole = generated(url)
    end = whole["output_ids"][2]
    cut = generated(url, stop_token_ids=[end])
    assert cut["output_ids"] == whole["output_ids"][: whole["output_ids"].index(end)]
    assert cut["meta_info"]["finish_reason"] == {"type": "stop"}
    shown = generated(url, stop_token_ids=[end], include_stop_str_in_output=True)
    assert shown["output_ids"] == [*cut["output_ids"], end]
    for fields in ({"stop_token_ids": [1 << 20]}, {"prompt": None, "input_ids": [1 << 20]}):
        reply = generate(url, **fields)
        assert reply.status == 400
        assert reply.json()["message"].startswith(
            f"{list(fields)[-1]}: token id 1048576 is outside the vocabulary"
        )


def test_a_smallest_length_is_reached(url: str) -> None:
    text = chat(url)["choices"][0]["message"]["content"]
    body = chat(url, min_new_tokens=30, max_tokens=60, stop=text[0])
    assert body["usage"]["completion_tokens"] >= 30
    assert chat(url, stop=text[0])["choices"][0]["message"]["content"] == ""


def test_special_tokens_are_shown_where_they_are_kept(url: str) -> None:
    assert "<|im_end|>" not in generated(url, skip_special_tokens=False)["text"]
    start = post(url, "/v1/encode", {"input": "<|im_start|>"}).json()["input_ids"]
    assert len(start) == 1
    fields: dict[str, Any] = {
        "logit_bias": {str(start[0]): 100},
        "max_tokens": 2,
        "return_token_ids": True,
    }
    shown = chat(url, **fields, skip_special_tokens=False)["choices"][0]["message"]
    assert shown["gen_tokens"] == start * 2
    assert shown["content"].count("<|im_start|>") == 2
    assert chat(url, **fields)["choices"][0]["message"]["content"] == ""


def test_a_live_session_is_occupied_and_free_afterwards(url: str) -> None:
    with connect(url) as connection:
        body = {"prompt": HELLO, "session_id": 7, "stream": True, **ENDLESS}
        connection.send(post_bytes(url, "/lmdeploy/generate", body))
        assert b" 200 OK" in connection.read_until(b"\r\n\r\n")
        refused = generate(url, session_id=7)
        assert (refused.status, refused.json()["message"]) == (400, "The session_id 7 is occupied.")
    wait_until(lambda: generate(url, session_id=7, max_tokens=1).status == 200)
    assert chat(url, session_id=7, max_tokens=1)["id"] == "7"


def test_a_prompt_that_is_too_long_is_refused_with_both_numbers(url: str) -> None:
    reply = generate(url, prompt="a " * (2 * LONG_CTX))
    assert reply.status == 400
    assert "must be smaller than the model context length (" in reply.json()["message"]


@pytest.mark.parametrize("prefix", ["", "/lmdeploy"])
def test_scores_of_a_reranker(url: str, prefix: str) -> None:
    def scores(given: object) -> list[float]:
        reply = post(url, f"{prefix}/pooling", {"model": "tiny-reranker", "input": given})
        assert reply.status == 200, reply.body
        return [item["data"] for item in reply.json()["data"]]

    [one] = scores("the world")
    assert isinstance(one, float)
    two = scores(["the world", "people"])
    assert two[0] == pytest.approx(one, rel=1e-4)
    assert two[1] != pytest.approx(one, rel=1e-4)
    [by_ids] = scores([5, 6, 7])
    assert scores([[5, 6, 7], [8]])[0] == pytest.approx(by_ids, rel=1e-4)
    reply = post(url, f"{prefix}/pooling", {"model": "tiny-reranker", "input": []})
    assert (reply.status, reply.json()["message"]) == (400, "Input list cannot be empty.")


def test_a_decoder_scores_by_its_last_token(url: str) -> None:
    def scores(*given: object) -> list[float]:
        reply = post(url, "/pooling", {"model": "tiny-judge", "input": list(given)})
        assert reply.status == 200, reply.body
        return [item["data"] for item in reply.json()["data"]]

    chat = "<|im_start|>user\nthe world<|im_end|>\n<|im_start|>assistant\n"
    one, two, shorter = scores(chat, f"{chat}yes", "the world")
    assert all(isinstance(score, float) and 0 < score < 1 for score in (one, two, shorter))
    assert len({round(score, 4) for score in (one, two, shorter)}) == 3
    reply = post(url, "/pooling", {"model": "tiny-judge", "input": "<|im_start|>"})
    assert reply.json()["usage"]["prompt_tokens"] == 1, "a special token, as in chats"


def test_vectors_of_an_embedder(url: str) -> None:
    pooled = post(url, "/pooling", {"model": "tiny-bert", "input": "the world"}).json()["data"][0]["data"]
    body = {"model": "tiny-bert", "input": "the world"}
    unit = post(url, "/lmdeploy/v1/embeddings", body).json()["data"][0]["embedding"]
    norm = sum(value * value for value in pooled) ** 0.5
    assert [value / norm for value in pooled] == pytest.approx(unit, abs=1e-5)
    assert post(url, "/pooling", {"model": MODEL, "input": "a"}).status == 400


def test_series_are_counted_for_every_dialect(url: str) -> None:
    before = metric(url, "lmdeploy:generation_tokens_total", model_name=MODEL)
    count = generated(url, max_tokens=5, ignore_eos=True)["meta_info"]["completion_tokens"]
    post(url, "/v1/completions", {"prompt": HELLO, "max_tokens": 3, "temperature": 0})
    wait_until(
        lambda: metric(url, "lmdeploy:generation_tokens_total", model_name=MODEL) == before + count + 3
    )
    assert b"lmdeploy:time_to_first_token_seconds_bucket" in get(url, "/lmdeploy/metrics").body


def test_steps_are_counted_by_their_tokens(url: str) -> None:
    def steps(le: str) -> float:
        return metric(url, "lmdeploy:iteration_tokens_total_bucket", model_name=MODEL, le=le)

    def count() -> float:
        return metric(url, "lmdeploy:iteration_tokens_total_count", model_name=MODEL)

    before = steps("8.0")
    generated(url, max_tokens=20, ignore_eos=True, temperature=1)
    wait_until(lambda: steps("8.0") >= before + 3)
    wait_until(lambda: steps("+Inf") == count())
