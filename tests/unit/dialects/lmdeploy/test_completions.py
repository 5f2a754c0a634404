from __future__ import annotations

from typing import Any

import pytest

from jan_serve.core.request import GenerationRequest, SamplingParams, StopConditions, TextPrompt, TokenPrompt
from jan_serve.dialects.lmdeploy.completions import CompletionRequest, completion_requests
from jan_serve.errors import InvalidRequest


def completions(**body: Any) -> list[GenerationRequest]:
    return completion_requests(CompletionRequest.model_validate({"model": "m", "prompt": "a"} | body))


V1 = SamplingParams(temperature=0.7, top_k=40, repeat_last_n=-1)


def test_defaults_of_a_completion() -> None:
    assert completions() == [
        GenerationRequest(
            model="m",
            prompt=TextPrompt("a"),
            sampling=V1,
            stopping=StopConditions(max_tokens=16),
            return_tokens=True,
            given=frozenset({"prompt", "model"}),
        )
    ]


def test_logprobs_of_completions() -> None:
    assert [request.logprobs for request in completions(logprobs=2)] == [2]
    assert [request.logprobs for request in completions(logprobs=0)] == [None]
    with pytest.raises(InvalidRequest, match="logprobs must be non-negative"):
        completions(logprobs=-1)


def test_prompts_of_completions() -> None:
    found = completions(prompt=["a", "b"], n=2)
    assert [(request.prompt, request.n) for request in found] == [
        (TextPrompt("a"), 2), (TextPrompt("b"), 2),
    ]  # fmt: skip
    assert [request.prompt for request in completions(prompt=[1, 2])] == [TokenPrompt((1, 2))]
    assert [request.prompt for request in completions(prompt=[[1], [2]])] == [
        TokenPrompt((1,)), TokenPrompt((2,)),
    ]  # fmt: skip
    with pytest.raises(InvalidRequest, match="128 prompts with 2 choices each are 256; the limit is 128"):
        completions(prompt=["a"] * 128, n=2)
