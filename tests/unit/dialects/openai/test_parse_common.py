from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from jan_serve.core.request import (
    AdapterChoice,
    ChatPrompt,
    GenerationRequest,
    SamplingParams,
    StopConditions,
)
from jan_serve.dialects.openai.llama_server import InfillRequest, infill_request
from jan_serve.dialects.shared import limits
from jan_serve.errors import InvalidRequest
from tests.unit.dialects.openai_requests import chat, completion, completions


def _infill(**fields: Any) -> GenerationRequest:
    return infill_request(InfillRequest.model_validate(fields))


def test_explicit_fields_are_those_that_the_caller_set() -> None:
    """An explicit default counts, null does not."""
    assert completion(temperature=0.8, seed=None, max_tokens=16, stop=[]).given == {
        "temperature", "max_tokens", "stop"
    }  # fmt: skip
    assert frozenset({"max_tokens", "stop", "seed"}) <= (
        chat(max_completion_tokens=0, stop_sequences=["a"], seed=-1).given or frozenset()
    )
    assert "max_tokens" in (chat(max_output_tokens=-1).given or ())
    assert _infill(n_predict=-1, top_k=1).given == {"max_tokens", "top_k"}
    assert _infill(samplers=["top_k"]).given is None


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
    assert _infill(lora=lora).adapters == expected


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


def test_every_sampling_field_arrives() -> None:
    sampling = {
        "temperature": 0, "top_k": 7, "top_p": 1, "min_p": 0, "repeat_penalty": 1, "presence_penalty": -2,
        "frequency_penalty": 2, "mirostat_mode": 2, "mirostat_tau": 4, "mirostat_eta": 0.5, "seed": 4294967293,
    }  # fmt: skip
    body = sampling | {
        "logit_bias": {"5": -100},
        "min_tokens": 3,
        "ignore_eos": True,
        "stop": ["a", "b", "a"],
        "user": "u",
    }
    request = completion(**body)
    assert request.sampling == SamplingParams(**sampling, logit_bias={5: -100.0})  # pyright: ignore[reportArgumentType]
    assert request.stopping == StopConditions(max_tokens=16, min_tokens=3, ignore_eos=True, stop=("a", "b"))
    assert chat(**body).sampling == request.sampling


def test_seed_minus_one_draws_one() -> None:
    assert completion(seed=-1).sampling.seed is None
    assert completion(seed=0).sampling.seed == 0


@pytest.mark.parametrize(
    ("seed", "used"),
    [((1 << 63) - 1, 1), (1 << 40, 512), (-2, 0xFFFFFFFC), (-(1 << 63), 0xFFFFFFFC), (0xFFFFFFFF, 1)],
)
def test_a_seed_of_64_bits_is_taken_modulo(seed: int, used: int) -> None:
    assert completion(seed=seed).sampling.seed == chat(seed=seed).sampling.seed == used


def test_bias_by_text() -> None:
    request = completion(logit_bias={"Hello": 2, "5": 1}, logit_bias_type="tokens")
    assert request.logit_bias_text == {"Hello": 2.0, "5": 1.0}
    assert request.sampling.logit_bias == {}
    assert completion(logit_bias={"5": 1}, logit_bias_type="input_ids").sampling.logit_bias == {5: 1.0}


def name_of(value: Any) -> str:
    return str(value)[:24]


REFUSED: list[tuple[str, Any, str]] = [
    ("temperature", 1e9, "from 0 to 100"),
    ("temperature", -5, "from 0 to 100"),
    ("repeat_penalty", 0, "above 0, up to 100"),
    ("repeat_penalty", 1e300, "from 0 to 100"),
    ("top_k", 1 << 40, "from 0 to 2147483647"),
    ("min_tokens", 1 << 31, "from 0 to 2147483647"),
    ("stop", "", "empty"),
    ("stop", [""], "empty"),
    ("stop", ["ok", ""], "empty"),
    ("stop", ["x" * 1025], "1024"),
    ("stop", ["a"] * 500_000, "limit is 64"),
    ("n", 0, "from 1 to 128"),
    ("n", 1000, "from 1 to 128"),
    ("logit_bias", {"AI": 1}, "'AI' is not a token id"),
    ("logit_bias", {"-1": 100}, "'-1' is not a token id"),
    ("logit_bias", {"1": 101}, "'1' must be from -100 to 100"),
    ("logit_bias", {"99999999999": 1}, "'99999999999'"),
    ("logit_bias", {str(i): 1 for i in range(100_000)}, "limit is 1024"),
]


@pytest.mark.parametrize(("field", "value", "words"), REFUSED, ids=name_of)
@pytest.mark.parametrize("parse", [completion, chat])
def test_values_within_the_schema_that_are_rejected(parse: Any, field: str, value: Any, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(**{field: value})
    assert caught.value.param == field
    assert caught.value.message.startswith(f"{field}: ")
    assert words in caught.value.message


VIOLATIONS: list[tuple[str, Any]] = [
    ("temperature", "0.5"), ("temperature", True), ("temperature", 10**400), ("top_p", -1),
    ("top_p", 1.01), ("min_p", 5), ("top_k", -1), ("top_k", 1.5), ("repeat_penalty", -0.1), ("presence_penalty", 2.1),
    ("frequency_penalty", -2.1), ("mirostat_mode", 3), ("mirostat_tau", 10.1), ("mirostat_eta", 0), ("min_tokens", -1),
    ("ignore_eos", 1), ("min_tokens", "3"),
    ("max_tokens", "16"), ("max_tokens", 1.5), ("stop", 5), ("stop", [1] * 10), ("stream", "true"),
    ("stream", 1), ("logit_bias", {"1": "x"}), ("logit_bias", [1]), ("logit_bias_type", "words"), ("seed", "x"),
    ("model", 3), ("n", "2"), ("grammar", 1), ("stream_options", 1), ("user", []),
]  # fmt: skip


def test_null_counts_as_absent() -> None:
    assert completion(temperature=None, prompt=None) == completion()
    assert chat(temperature=None, top_k=None) == chat()


@pytest.mark.parametrize(("field", "value"), VIOLATIONS, ids=name_of)
@pytest.mark.parametrize("parse", [completion, chat])
def test_values_that_break_the_schema(parse: Any, field: str, value: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        parse(**{field: value})
    assert {error["loc"][0] for error in caught.value.errors()} == {field}


def test_nulls_and_unknown_fields_are_accepted() -> None:
    body = dict.fromkeys(
        ["max_tokens", "stop", "presence_penalty", "frequency_penalty", "logit_bias", "seed", "model", "n", "user",
         "logit_bias_type", "grammar", "stream_options"]
    )  # fmt: skip
    assert completion(**body, suffix=None, logprobs=None, best_of=None, kwargs={}).stopping.max_tokens is None
    nulls = dict.fromkeys(
        ["functions", "function_call", "tools", "tool_choice", "logprobs", "top_logprobs", "response_format"]
    )
    assert chat(**body, **nulls, future_field=[1]).constraint is None


def test_limits_are_within_those_of_the_engine() -> None:
    assert limits.SEEDS < 1 << 32
    assert limits.MAX_CHOICES >= limits.MAX_CHOICES
