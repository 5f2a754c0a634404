from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from jan_serve.core.request import (
    AdapterChoice,
    ChatPrompt,
)
from jan_serve.dialects.openai.llama_server.infill import infill_request
from jan_serve.dialects.openai.llama_server.wire import InfillRequest
from jan_serve.errors import InvalidRequest
from tests.support.openai_requests import chat, completion, completions


def test_explicit_fields_are_those_that_the_caller_set() -> None:
    """An explicit default counts, null does not."""
    assert completion(temperature=0.8, seed=None, max_tokens=16, stop=[]).given == {
        "temperature", "max_tokens", "stop"
    }  # fmt: skip
    assert frozenset({"max_tokens", "stop", "seed"}) <= (
        chat(max_completion_tokens=0, stop_sequences=["a"], seed=-1).given or frozenset()
    )
    assert "max_tokens" in (chat(max_output_tokens=-1).given or ())
    assert infill_request(InfillRequest(n_predict=-1, top_k=1)).given == {"max_tokens", "top_k"}
    assert infill_request(InfillRequest(samplers=["top_k"])).given is None


@pytest.mark.parametrize(
    ("lora", "expected"),
    [
        (None, None),
        ([], ()),
        (["a", "b"], (AdapterChoice("a"), AdapterChoice("b"))),
        ([{"id": 0, "scale": 0.5}, {"id": 1.0}], (AdapterChoice(0, 0.5), AdapterChoice(1))),
        ([{"name": "a", "scale": -1}, {"id": "b"}], (AdapterChoice("a", -1.0), AdapterChoice("b"))),
    ],
)
def test_adapters(lora: Any, expected: Any) -> None:
    assert chat(lora=lora).adapters == completion(lora=lora).adapters == expected
    assert infill_request(InfillRequest.model_validate({"lora": lora})).adapters == expected


@pytest.mark.parametrize("lora", ["a", [1], [{"id": True}], [{"id": 0, "scale": "1"}]])
def test_adapters_of_a_wrong_form(lora: Any) -> None:
    with pytest.raises(ValidationError):
        chat(lora=lora)


@pytest.mark.parametrize("lora", [[{}], [{"scale": 1}], [{"id": 0, "name": "a"}], ["a"] * 33])
def test_adapters_that_are_rejected(lora: Any) -> None:
    with pytest.raises(InvalidRequest, match="lora"):
        chat(lora=lora)


def test_choices_and_candidates() -> None:
    for body, expected in [
        ({}, (1, 1)), ({"n": 3}, (3, 3)), ({"n": 2, "best_of": 5}, (2, 5)), ({"best_of": 4}, (1, 4)),
        ({"n": None, "best_of": None}, (1, 1)),
    ]:  # fmt: skip
        request = completion(**body)
        assert (request.n, request.best_of) == expected


def test_the_product_of_prompts_and_choices_is_bounded() -> None:
    assert len(completions(prompt=["a"] * 64, n=2)) == 64
    with pytest.raises(InvalidRequest, match="64 prompts with 3 choices"):
        completions(prompt=["a"] * 64, n=3)
    with pytest.raises(InvalidRequest, match="best_of"):
        completions(n=3, best_of=2)


@pytest.mark.parametrize(
    ("body", "thinks"),
    [
        ({}, True),
        ({"reasoning_effort": "low"}, True),
        ({"reasoning_effort": "high"}, True),
        ({"reasoning_effort": "none"}, False),
        ({"chat_template_kwargs": {"reasoning_effort": "none"}}, False),
        ({"reasoning_budget": 0}, False),
        ({"reasoning_budget": -1}, True),
        ({"enable_thinking": False}, False),
        ({"enable_thinking": False, "reasoning_effort": "high"}, False),
        ({"chat_template_kwargs": {"enable_thinking": False}}, False),
        ({"chat_template_kwargs": {"thinking": False}}, False),
        ({"enable_thinking": False, "chat_template_kwargs": {"enable_thinking": True}}, True),
        ({"enable_thinking": False, "chat_template_kwargs": {"enable_thinking": None}}, False),
    ],
)
def test_a_request_switches_thinking_off_in_any_of_its_fields(body: dict[str, Any], thinks: bool) -> None:
    prompt = chat(**body).prompt
    assert isinstance(prompt, ChatPrompt)
    assert prompt.thinks is thinks
