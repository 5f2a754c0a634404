from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from jan_serve.core.request import (
    GenerationRequest,
    InfillPrompt,
    StopConditions,
    TextPrompt,
    TokenPrompt,
)
from jan_serve.errors import InvalidRequest
from tests.unit.dialects.openai_requests import JAN_SAMPLING, completion, completions


def test_defaults_of_a_completion() -> None:
    assert completion() == GenerationRequest(
        prompt=TextPrompt(""),
        sampling=JAN_SAMPLING,
        stopping=StopConditions(max_tokens=16),
        given=frozenset(),
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a", [TextPrompt("a")]),
        (["a"], [TextPrompt("a")]),
        (["a", "b"], [TextPrompt("a"), TextPrompt("b")]),
        ([1, 2.0], [TokenPrompt((1, 2))]),
        ([[1], [2, 3]], [TokenPrompt((1,)), TokenPrompt((2, 3))]),
    ],
)
def test_forms_of_a_prompt(value: Any, expected: list[Any]) -> None:
    assert [request.prompt for request in completions(prompt=value)] == expected


def test_a_suffix_is_filled_in() -> None:
    assert completion(prompt="a", suffix="b").prompt == InfillPrompt("a", "b", prefix_only=True)
    assert completion(prompt="a", suffix="").prompt == TextPrompt("a")


@pytest.mark.parametrize(
    ("value", "expected"), [(None, None), (0, None), (5, 5), (16.0, 16), (1 << 40, (1 << 31) - 1)]
)
def test_max_tokens_of_a_completion(value: Any, expected: int | None) -> None:
    assert completion(max_tokens=value).stopping.max_tokens == expected


def test_echo_with_logprobs_scores_the_prompt() -> None:
    assert completion(logprobs=2).prompt_logprobs is None
    assert completion(logprobs=2, echo=True).prompt_logprobs == 2
    assert completion(echo=True).prompt_logprobs is None


REFUSED_COMPLETIONS: list[tuple[str, Any, str]] = [
    ("best_of", 1000, "from 1 to 128"),
    ("best_of", 0, "from 1 to 128"),
    ("prompt", ["a"] * 100_000, "limit is 128"),
    ("prompt", [], "empty"),
    ("prompt", [[]], "empty"),
    ("prompt", [1, -7], "-7 is not a token id"),
    ("prompt", [1 << 40], "not a token id"),
    ("logprobs", 100_000, "from 0 to 100"),
]


@pytest.mark.parametrize(("field", "value", "words"), REFUSED_COMPLETIONS)
def test_completions_that_are_rejected(field: str, value: Any, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        completions(**{field: value})
    assert caught.value.param == field
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", -1), ("echo", 1), ("suffix", 2), ("logprobs", -1), ("prompt", 3),
        ("prompt", ["a", 1]), ("prompt", [1, "a"]), ("prompt", [[1], 2]), ("prompt", [True]), ("prompt", [1.5]),
        ("prompt", [[["a"]]]),
    ],
)  # fmt: skip
def test_completions_that_break_the_schema(field: str, value: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        completions(**{field: value})
    assert len(caught.value.errors()) == 1
