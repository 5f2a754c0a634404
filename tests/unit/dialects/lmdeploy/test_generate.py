from __future__ import annotations

from typing import Any

import pytest

from jan_serve.core.request import GenerationRequest, SamplingParams, StopConditions, TextPrompt, TokenPrompt
from jan_serve.dialects.lmdeploy.generate import GenerateRequest, generate_request
from jan_serve.errors import InvalidRequest


def generate(**body: Any) -> GenerationRequest:
    return generate_request(GenerateRequest.model_validate(body))


def test_defaults_of_generate() -> None:
    assert generate(prompt="a") == GenerationRequest(
        prompt=TextPrompt("a"),
        sampling=SamplingParams(temperature=1.0, top_k=0, repeat_last_n=-1),
        stopping=StopConditions(max_tokens=128),
        return_tokens=True,
        given=frozenset({"prompt"}),
    )


def test_the_model_and_unknown_members_are_ignored() -> None:
    assert generate(prompt="a", model="x", kwargs={}).model is None


def test_stop_tokens_of_generate() -> None:
    assert generate(input_ids=[1, 2], stop_token_ids=[3]).stopping.stop_token_ids == (3,)
    assert generate(input_ids=[1, 2], stop_token_ids=[3], ignore_eos=True).stopping.stop_token_ids == ()
    assert generate(input_ids=[1, 2]).prompt == TokenPrompt((1, 2), "input_ids")


GENERATE_REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "both": ({"prompt": "a", "input_ids": [1]}, "You must specify exactly one of prompt or input_ids"),
    "neither": ({}, "You must specify exactly one of prompt or input_ids"),
    "empty prompt": ({"prompt": ""}, "The prompt must not be an empty string"),
    "empty ids": ({"input_ids": []}, "The input_ids must not be an empty list"),
    "max_tokens": ({"prompt": "a", "max_tokens": 0}, "The max_tokens 0 must be a positive integer."),
    "limits come before sampling": (
        {"prompt": "a", "max_tokens": 0, "top_p": 0},
        "The max_tokens 0 must be a positive integer.",
    ),
    "top_p": ({"prompt": "a", "top_p": 0}, "The top_p 0.0 must be in (0, 1]."),
    "temperature": ({"prompt": "a", "temperature": 3}, "The temperature 3.0 must be in [0, 2]"),
    "top_k": ({"prompt": "a", "top_k": -1}, "The top_k -1 cannot be a negative integer."),
    "ids": ({"input_ids": [-1]}, "input_ids: -1 is not a token id"),
    "stop ids": (
        {"prompt": "a", "stop_token_ids": [1 << 31]},
        "stop_token_ids: 2147483648 is not a token id",
    ),
}


@pytest.mark.parametrize("case", GENERATE_REFUSED)
def test_generate_checks_in_this_order(case: str) -> None:
    body, words = GENERATE_REFUSED[case]
    with pytest.raises(InvalidRequest) as error:
        generate(**body)
    assert error.value.message == words
