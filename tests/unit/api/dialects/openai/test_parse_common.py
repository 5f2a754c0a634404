from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from jan_serve.api.dialects.openai import limits
from jan_serve.api.dialects.openai.chat.parse import chat_request
from jan_serve.api.dialects.openai.chat.wire import CreateChatCompletionRequest
from jan_serve.api.dialects.openai.completions.parse import completion_requests
from jan_serve.api.dialects.openai.completions.wire import CreateCompletionRequest
from jan_serve.api.dialects.openai.llama_server.infill import infill_request
from jan_serve.api.dialects.openai.llama_server.wire import InfillRequest
from jan_serve.core.constraint import (
    Constraint,
    GbnfConstraint,
    JsonObjectConstraint,
    JsonSchemaConstraint,
    RegexConstraint,
)
from jan_serve.core.messages import (
    FunctionCall,
    ImagePart,
    Message,
    TextPart,
    Tool,
    ToolCall,
    ToolChoice,
)
from jan_serve.core.request import (
    AdapterChoice,
    ChatPrompt,
    GenerationRequest,
    InfillPrompt,
    TextPrompt,
    TokenPrompt,
)
from jan_serve.core.sampling import SamplingParams, StopConditions
from jan_serve.errors import InvalidRequest, InvalidSchema, UnsupportedContent

HI = [{"role": "user", "content": "Hi"}]


def completions(**body: Any) -> list[GenerationRequest]:
    return completion_requests(CreateCompletionRequest.model_validate(body))


def completion(**body: Any) -> GenerationRequest:
    [request] = completions(**body)
    return request


def chat(**body: Any) -> GenerationRequest:
    return chat_request(CreateChatCompletionRequest.model_validate({"messages": HI} | body))


def chat_prompt(**body: Any) -> ChatPrompt:
    prompt = chat(**body).prompt
    assert isinstance(prompt, ChatPrompt)
    return prompt


JAN_SAMPLING = SamplingParams(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, repeat_penalty=1.1)


def test_defaults_of_a_completion() -> None:
    assert completion() == GenerationRequest(
        prompt=TextPrompt(""),
        sampling=JAN_SAMPLING,
        stopping=StopConditions(max_tokens=16),
        given=frozenset(),
    )


def test_defaults_of_a_chat() -> None:
    prompt = ChatPrompt(messages=(Message(role="user", content="Hi"),))
    assert chat() == GenerationRequest(prompt=prompt, sampling=JAN_SAMPLING, given=frozenset({"messages"}))


def test_every_sampling_field_arrives() -> None:
    sampling = {
        "temperature": 0, "top_k": 7, "top_p": 1, "min_p": 0, "repeat_penalty": 1, "presence_penalty": -2,
        "frequency_penalty": 2, "mirostat_mode": 2, "mirostat_tau": 4, "mirostat_eta": 0.5, "seed": 4294967295,
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


def test_nulls_and_unknown_fields_are_taken() -> None:
    body = dict.fromkeys(
        ["max_tokens", "stop", "presence_penalty", "frequency_penalty", "logit_bias", "seed", "model", "n", "user",
         "logit_bias_type", "grammar", "stream_options"]
    )  # fmt: skip
    assert completion(**body, suffix=None, logprobs=None, best_of=None, kwargs={}).stopping.max_tokens is None
    nulls = dict.fromkeys(
        ["functions", "function_call", "tools", "tool_choice", "logprobs", "top_logprobs", "response_format"]
    )
    assert chat(**body, **nulls, future_field=[1]).constraint is None


def test_what_a_caller_set_is_told_apart() -> None:
    """A default that is said is said; null says nothing."""
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
def test_adapters_that_are_refused(lora: Any) -> None:
    with pytest.raises(InvalidRequest, match="lora"):
        chat(lora=lora)


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


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"max_tokens": None}, None), ({"max_tokens": 0}, None), ({"max_tokens": -1}, None), ({"max_tokens": 9}, 9),
        ({"max_completion_tokens": 4, "max_tokens": 9}, 4), ({"max_output_tokens": 3}, 3),
    ],
)  # fmt: skip
def test_max_tokens_of_a_chat(body: dict[str, Any], expected: int | None) -> None:
    assert chat(**body).stopping.max_tokens == expected


def test_echo_with_logprobs_scores_the_prompt() -> None:
    assert completion(logprobs=2).prompt_logprobs is None
    assert completion(logprobs=2, echo=True).prompt_logprobs == 2
    assert completion(echo=True).prompt_logprobs is None


def test_chat_logprobs_need_both_fields() -> None:
    assert chat(logprobs=True).logprobs is None
    assert chat(top_logprobs=3).logprobs is None
    assert chat(logprobs=True, top_logprobs=0).logprobs == 0
    assert chat(logprobs=True, top_logprobs=3).logprobs == 3


def test_seed_minus_one_draws_one() -> None:
    assert completion(seed=-1).sampling.seed is None
    assert completion(seed=0).sampling.seed == 0


def test_bias_by_text() -> None:
    request = completion(logit_bias={"Hello": 2, "5": 1}, logit_bias_type="tokens")
    assert request.logit_bias_text == {"Hello": 2.0, "5": 1.0}
    assert request.sampling.logit_bias == {}
    assert completion(logit_bias={"5": 1}, logit_bias_type="input_ids").sampling.logit_bias == {5: 1.0}


def test_choices_and_candidates() -> None:
    for body, expected in [
        ({}, (1, 1)), ({"n": 3}, (3, 3)), ({"n": 2, "best_of": 5}, (2, 5)), ({"best_of": 4}, (1, 4)),
        ({"n": None, "best_of": None}, (1, 1)),
    ]:  # fmt: skip
        request = completion(**body)
        assert (request.n, request.best_of) == expected


REFUSED: list[tuple[str, Any, str]] = [
    ("temperature", 1e9, "from 0 to 100"),
    ("temperature", -5, "from 0 to 100"),
    ("repeat_penalty", 0, "above 0, up to 100"),
    ("repeat_penalty", 1e300, "from 0 to 100"),
    ("seed", 1 << 40, "from -1 to 4294967295"),
    ("seed", -2, "from -1 to 4294967295"),
    ("seed", 10**4000, "from -1 to"),
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
REFUSED_CHATS: list[tuple[str, Any, str]] = [
    ("max_tokens", -5, "-1"),
    ("max_completion_tokens", -2, "-1"),
    ("top_logprobs", 100_000, "from 0 to 100"),
    ("tools", [{"type": "function", "function": {"name": "f"}}] * 10_000, "limit is 512"),
    ("functions", [{"name": "f"}] * 10_000, "limit is 512"),
    ("messages", HI * 10_001, "limit is 10000"),
    ("response_format", {"type": "json_schema"}, "needs a schema"),
    ("response_format", {"type": "regex"}, "needs a pattern"),
]


def name_of(value: Any) -> str:
    return str(value)[:24]


@pytest.mark.parametrize(("field", "value", "words"), REFUSED, ids=name_of)
@pytest.mark.parametrize("parse", [completion, chat])
def test_values_within_the_schema_that_are_refused(parse: Any, field: str, value: Any, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(**{field: value})
    assert caught.value.param == field
    assert caught.value.message.startswith(f"{field}: ")
    assert words in caught.value.message


@pytest.mark.parametrize(("field", "value", "words"), REFUSED_COMPLETIONS, ids=name_of)
def test_completions_that_are_refused(field: str, value: Any, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        completions(**{field: value})
    assert caught.value.param == field
    assert words in caught.value.message


@pytest.mark.parametrize(("field", "value", "words"), REFUSED_CHATS, ids=name_of)
def test_chats_that_are_refused(field: str, value: Any, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        chat(**{field: value})
    assert caught.value.param == field
    assert words in caught.value.message


def test_the_product_of_prompts_and_choices_is_bounded() -> None:
    assert len(completions(prompt=["a"] * 64, n=2)) == 64
    with pytest.raises(InvalidRequest, match="64 prompts with 3 choices"):
        completions(prompt=["a"] * 64, n=3)
    with pytest.raises(InvalidRequest, match="best_of"):
        completions(n=3, best_of=2)


VIOLATIONS: list[tuple[str, Any]] = [
    ("temperature", "0.5"), ("temperature", True), ("temperature", 10**400), ("top_p", -1),
    ("top_p", 1.01), ("min_p", 5), ("top_k", -1), ("top_k", 1.5), ("repeat_penalty", -0.1), ("presence_penalty", 2.1),
    ("frequency_penalty", -2.1), ("mirostat_mode", 3), ("mirostat_tau", 10.1), ("mirostat_eta", 0), ("min_tokens", -1),
    ("ignore_eos", 1), ("min_tokens", "3"),
    ("max_tokens", "16"), ("max_tokens", 1.5), ("stop", 5), ("stop", [1] * 10), ("stream", "true"),
    ("stream", 1), ("logit_bias", {"1": "x"}), ("logit_bias", [1]), ("logit_bias_type", "words"), ("seed", "x"),
    ("model", 3), ("n", "2"), ("grammar", 1), ("stream_options", 1), ("user", []),
]  # fmt: skip


def test_null_is_no_value() -> None:
    assert completion(temperature=None, prompt=None) == completion()
    assert chat(temperature=None, top_k=None) == chat()


@pytest.mark.parametrize(("field", "value"), VIOLATIONS, ids=name_of)
@pytest.mark.parametrize("parse", [completion, chat])
def test_values_that_break_the_schema(parse: Any, field: str, value: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        parse(**{field: value})
    assert {error["loc"][0] for error in caught.value.errors()} == {field}


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


def test_a_long_wrong_list_costs_one_error() -> None:
    lists: dict[str, list[Any]] = {"stop": [1] * 60, "messages": [{}] * 9000, "tools": [{}] * 500}
    for field, value in lists.items():
        with pytest.raises(ValidationError) as caught:
            chat(**{field: value})
        assert len(caught.value.errors()) <= 3


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("wire", "message"),
    [
        ({"role": "system", "content": "s"}, Message(role="system", content="s")),
        ({"role": "developer", "content": "s"}, Message(role="system", content="s")),
        ({"role": "user", "content": "u", "name": "Ann"}, Message(role="user", content="u", name="Ann")),
        ({"role": "user", "content": None}, Message(role="user")),
        ({"role": "assistant"}, Message(role="assistant")),
        (
            {"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": None},
            Message(role="assistant", tool_calls=(ToolCall("c1", FunctionCall("f", "{}")),)),
        ),
        (
            {"role": "assistant", "function_call": {"name": "f", "arguments": "{"}},
            Message(role="assistant", tool_calls=(ToolCall("call_f", FunctionCall("f", "{")),)),
        ),
        (
            {"role": "tool", "content": "2", "tool_call_id": "c1"},
            Message(role="tool", content="2", tool_call_id="c1"),
        ),
        ({"role": "function", "content": None, "name": "f"}, Message(role="function", name="f")),
        (
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": "x"}],
            },
            Message(role="user", content=(TextPart("a"), ImagePart("x"))),
        ),
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "y", "detail": "low"}}]},
            Message(role="user", content=(ImagePart("y"),)),
        ),
    ],
)
def test_messages(wire: dict[str, Any], message: Message) -> None:
    assert chat_prompt(messages=[wire]).messages == (message,)


BAD_MESSAGES: list[Any] = [
        {}, {"role": "user"}, {"role": "wizard", "content": "x"}, {"role": "tool", "content": "x"}, "text",
        {"role": "function", "content": "x"}, {"role": "system"}, {"role": "user", "content": [{"type": "text"}]},
        {"role": "user", "content": [{"type": "smell", "smell": "x"}]}, {"role": "assistant", "tool_calls": [{}]},
        {"role": "user", "content": 3},
]  # fmt: skip


@pytest.mark.parametrize("wire", BAD_MESSAGES)
def test_messages_that_break_the_schema(wire: Any) -> None:
    with pytest.raises(ValidationError):
        chat(messages=[wire])


def test_sounds_and_films_are_refused_by_name() -> None:
    part = {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}
    with pytest.raises(UnsupportedContent, match="input_audio"):
        chat(messages=[{"role": "user", "content": [part]}])


FUNCTION = {"name": "f", "description": "d", "parameters": {"type": "object"}}
TOOL = Tool(name="f", description="d", parameters={"type": "object"})


@pytest.mark.parametrize(
    ("body", "tools", "choice"),
    [
        ({}, (), ToolChoice("auto")),
        ({"tools": [{"type": "function", "function": FUNCTION}]}, (TOOL,), ToolChoice("auto")),
        ({"functions": [FUNCTION], "function_call": "none"}, (TOOL,), ToolChoice("none")),
        ({"functions": [FUNCTION], "function_call": {"name": "f"}}, (TOOL,), ToolChoice("named", "f")),
        ({"tools": [], "tool_choice": "required"}, (), ToolChoice("required")),
        (
            {"tool_choice": {"type": "function", "function": {"name": "f"}}, "function_call": "none"},
            (),
            ToolChoice("named", "f"),
        ),
    ],
)
def test_tools(body: dict[str, Any], tools: tuple[Tool, ...], choice: ToolChoice) -> None:
    prompt = chat_prompt(**body)
    assert (prompt.tools, prompt.tool_choice) == (tools, choice)


SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {}}}


@pytest.mark.parametrize(
    ("response_format", "constraint"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, JsonObjectConstraint()),
        ({"type": "json_object", "schema": None}, JsonObjectConstraint()),
        ({"type": "json_object", "schema": SCHEMA}, JsonSchemaConstraint(SCHEMA)),
        ({"type": "json_object", "value": SCHEMA}, JsonSchemaConstraint(SCHEMA)),
        ({"type": "json", "value": SCHEMA}, JsonSchemaConstraint(SCHEMA)),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
            JsonSchemaConstraint(SCHEMA),
        ),
        ({"type": "json_schema", "value": {"name": "n", "schema": SCHEMA}}, JsonSchemaConstraint(SCHEMA)),
        ({"type": "json_schema", "json_schema": {"name": "n", "schema": False}}, JsonSchemaConstraint(False)),
        ({"type": "regex", "value": "a+"}, RegexConstraint("a+")),
        ({"type": "regex_schema", "regex_schema": "a+"}, RegexConstraint("a+")),
    ],
)
def test_spellings_of_response_format(response_format: dict[str, Any], constraint: Constraint | None) -> None:
    assert chat(response_format=response_format).constraint == constraint


def test_response_format_has_precedence_over_a_grammar() -> None:
    assert chat(grammar="root ::= x").constraint == GbnfConstraint("root ::= x")
    assert completion(grammar="").constraint == GbnfConstraint("")
    assert chat(grammar="g", response_format={"type": "json_object"}).constraint == JsonObjectConstraint()


def test_a_schema_is_an_object_or_a_boolean() -> None:
    schemas: list[Any] = [3, "x", []]
    for schema in schemas:
        with pytest.raises(InvalidSchema):
            chat(response_format={"type": "json_object", "schema": schema})


def test_stop_sequences_of_the_ai_sdk_are_added() -> None:
    assert chat(stop="a", stop_sequences=["b"]).stopping.stop == ("a", "b")


def test_the_caps_are_within_what_the_engine_takes() -> None:
    assert limits.MAX_SEED < 1 << 32
    assert limits.MAX_CHOICES >= limits.MAX_PROMPTS
