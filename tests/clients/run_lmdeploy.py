"""Runs LMDeploy's own client against a server, outside the product's environment: `run_lmdeploy CASE URL`.

Prints nothing and ends with 0 where everything was as it should be. Not collected by pytest: see test_lmdeploy_client.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tests.clients.lmdeploy_parts import CLIENT_VERSION, use_lmdeploy

MODEL = "jan-tiny"
HELLO = "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n"
MESSAGES: list[dict[str, str]] = [{"role": "user", "content": "Hello!"}]


def client_of(url: str) -> Any:
    from lmdeploy.serve.openai.api_client import APIClient

    return APIClient(url)


def models(url: str) -> None:
    assert MODEL in client_of(url).available_models


def encode(url: str) -> None:
    client = client_of(url)
    ids, length = client.encode("Hello!")
    assert length == len(ids) > 0
    rows, lengths = client.encode(["Hello!", "a b"])
    assert rows[0] == ids
    assert lengths == [len(row) for row in rows]
    wrapped, _ = client.encode("Hello!", do_preprocess=True)
    assert len(wrapped) > len(ids)
    assert client.encode("Hello!", add_bos=False)[0] == ids  # the built-in model has no BOS


def chat(url: str) -> None:
    client = client_of(url)
    [reply] = client.chat_completions_v1(model=MODEL, messages=MESSAGES, temperature=0, max_tokens=20)
    content = reply["choices"][0]["message"]["content"]
    assert content
    assert reply["usage"]["completion_tokens"] <= 20
    events = list(
        client.chat_completions_v1(model=MODEL, messages=MESSAGES, temperature=0, max_tokens=20, stream=True)
    )
    assert "".join(event["choices"][0]["delta"]["content"] for event in events) == content
    assert [event["choices"][0]["finish_reason"] for event in events[:-1]] == [None] * (len(events) - 1)
    assert events[-1]["choices"][0]["finish_reason"] in ("stop", "length")
    [raw] = client.chat_completions_v1(model=MODEL, messages=HELLO, temperature=0, max_tokens=20)
    assert raw["choices"][0]["message"]["content"] == content


def chat_options(url: str) -> None:
    client = client_of(url)
    [reply] = client.chat_completions_v1(
        model=MODEL,
        messages=MESSAGES,
        temperature=0,
        max_completion_tokens=30,
        min_new_tokens=30,
        ignore_eos=True,
        logprobs=True,
        top_logprobs=2,
        repetition_penalty=1.1,
        logit_bias={"5": -10},
        stop=["never written"],
    )
    assert reply["usage"]["completion_tokens"] == 30
    assert reply["choices"][0]["finish_reason"] == "length"
    assert len(reply["choices"][0]["logprobs"]["content"]) == 30


def completions(url: str) -> None:
    client = client_of(url)
    [reply] = client.completions_v1(model=MODEL, prompt=HELLO, temperature=0)
    text = reply["choices"][0]["text"]
    assert text
    events = list(client.completions_v1(model=MODEL, prompt=HELLO, temperature=0, stream=True))
    assert "".join(event["choices"][0]["text"] for event in events) == text
    [several] = client.completions_v1(model=MODEL, prompt=[HELLO, "a"], temperature=0)
    assert [choice["index"] for choice in several["choices"]] == [0, 1]
    assert several["choices"][0]["text"] == text


def refusals(url: str) -> None:
    client = client_of(url)
    [unknown] = client.chat_completions_v1(model="no-such", messages=MESSAGES)
    assert (unknown["object"], unknown["code"]) == ("error", 404)
    assert unknown["message"] == "The model 'no-such' does not exist."
    [refused] = client.chat_completions_v1(model=MODEL, messages=MESSAGES, top_p=0, stream=True)
    assert (refused["code"], refused["message"]) == (400, "The top_p 0.0 must be in (0, 1].")


CASES: dict[str, Callable[[str], None]] = {
    case.__name__: case for case in (models, encode, chat, chat_options, completions, refusals)
}


if __name__ == "__main__":
    use_lmdeploy(CLIENT_VERSION)
    CASES[sys.argv[1]](sys.argv[2])
