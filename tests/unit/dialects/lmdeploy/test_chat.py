from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from jan_serve.core.constraint import JsonObjectConstraint, JsonSchemaConstraint, RegexConstraint
from jan_serve.core.messages import FunctionCall, ImagePart, Message, TextPart, ToolCall, ToolChoice
from jan_serve.core.request import (
    ChatPrompt,
    GenerationRequest,
    PartsPrompt,
    SamplingParams,
    StopConditions,
    TextPrompt,
)
from jan_serve.dialects.lmdeploy.chat import ChatRequest, chat_request
from jan_serve.dialects.lmdeploy.common import check_bias, requested_session
from jan_serve.dialects.lmdeploy.completions import CompletionRequest, completion_requests
from jan_serve.dialects.lmdeploy.generate import GenerateRequest, generate_request
from jan_serve.dialects.shared import limits
from jan_serve.errors import InvalidRequest, UnsupportedContent

HI = [{"role": "user", "content": "Hi"}]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def chat(**body: Any) -> GenerationRequest:
    return chat_request(ChatRequest.model_validate({"model": "m", "messages": HI} | body))


def chat_prompt(**body: Any) -> ChatPrompt:
    prompt = chat(**body).prompt
    assert isinstance(prompt, ChatPrompt)
    return prompt


def completions(**body: Any) -> list[GenerationRequest]:
    return completion_requests(CompletionRequest.model_validate({"model": "m", "prompt": "a"} | body))


def generate(**body: Any) -> GenerationRequest:
    return generate_request(GenerateRequest.model_validate(body))


V1 = SamplingParams(temperature=0.7, top_k=40, repeat_last_n=-1)


def test_defaults_of_a_chat() -> None:
    assert chat() == GenerationRequest(
        model="m",
        prompt=ChatPrompt(messages=(Message(role="user", content="Hi"),)),
        sampling=V1,
        stopping=StopConditions(),
        return_tokens=True,
        given=frozenset({"model", "messages"}),
    )


SAMPLED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "as said": (
        {"temperature": 2, "top_p": 0.5, "top_k": 7, "min_p": 0.1, "repetition_penalty": 1.2, "seed": 9},
        {"temperature": 2, "top_p": 0.5, "top_k": 7, "min_p": 0.1, "repeat_penalty": 1.2, "seed": 9},
    ),
    "nulls switch nothing on": (
        {"temperature": None, "top_p": None, "top_k": None, "repetition_penalty": None, "seed": None},
        {"temperature": 1.0, "top_p": 1.0, "top_k": 0},
    ),
    "no penalty": ({"repetition_penalty": 0}, {"temperature": 0.7, "top_k": 40, "repeat_penalty": 1.0}),
    "less than none": ({"repetition_penalty": -3}, {"temperature": 0.7, "top_k": 40, "repeat_penalty": 1.0}),
    "a seed of 0 is none": ({"seed": 0}, {"temperature": 0.7, "top_k": 40, "seed": None}),
    "64 bits": ({"seed": 0xFFFFFFFE}, {"temperature": 0.7, "top_k": 40, "seed": 0}),
    "bias": (
        {"logit_bias": {"5": -1000, "6": 3}},
        {"temperature": 0.7, "top_k": 40, "logit_bias": {5: -100.0, 6: 3.0}},
    ),
    "read and ignored": (
        {"presence_penalty": 2, "frequency_penalty": 2, "user": "u"},
        {"temperature": 0.7, "top_k": 40},
    ),
}


@pytest.mark.parametrize("case", SAMPLED)
def test_sampling(case: str) -> None:
    body, wanted = SAMPLED[case]
    assert chat(**body).sampling == SamplingParams(repeat_last_n=-1, **wanted)


STOPPED: dict[str, tuple[dict[str, Any], StopConditions]] = {
    "max_tokens": ({"max_tokens": 5}, StopConditions(max_tokens=5)),
    "the newer name wins": ({"max_tokens": 5, "max_completion_tokens": 6}, StopConditions(max_tokens=6)),
    "0 says nothing": ({"max_tokens": 5, "max_completion_tokens": 0}, StopConditions(max_tokens=5)),
    "one text": ({"stop": "a"}, StopConditions(stop=("a",))),
    "texts": ({"stop": ["a", "b", "a"]}, StopConditions(stop=("a", "b"))),
    "included": (
        {"stop": "a", "include_stop_str_in_output": True},
        StopConditions(stop=("a",), include_stop=True),
    ),
    "nothing stops": ({"stop": "a", "ignore_eos": True}, StopConditions(ignore_eos=True)),
    "minimum": (
        {"min_new_tokens": 3, "max_tokens": 5},
        StopConditions(max_tokens=5, min_tokens=3, stop_after_min=True),
    ),
    "a minimum out of reach is none": ({"min_new_tokens": 6, "max_tokens": 5}, StopConditions(max_tokens=5)),
}


@pytest.mark.parametrize("case", STOPPED)
def test_stopping(case: str) -> None:
    body, wanted = STOPPED[case]
    assert chat(**body).stopping == wanted


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "n": ({"n": 0}, "The n 0 must be a positive int."),
    "many": ({"n": 129}, "The n 129 exceeds the maximum supported choices (128)."),
    "top_p": ({"top_p": 0}, "The top_p 0.0 must be in (0, 1]."),
    "top_k": ({"top_k": -1}, "The top_k -1 cannot be a negative integer."),
    "temperature": ({"temperature": 3}, "The temperature 3.0 must be in [0, 2]"),
    "cold": ({"temperature": -0.1}, "The temperature -0.1 must be in [0, 2]"),
    "min_p": ({"min_p": 1.5}, "The min_p 1.5 must be in [0, 1]."),
    "penalty": ({"repetition_penalty": 101}, "The repetition_penalty 101.0 must be 100 at most."),
    "max_tokens": ({"max_tokens": -1}, "The max_tokens -1 must be a positive integer."),
    "min_new_tokens": ({"min_new_tokens": -1}, "The min_new_tokens -1 cannot be a negative integer."),
    "stop": ({"stop": [""]}, "stop: an empty text would end every answer at once"),
    "long stop": ({"stop": "a" * 1025}, "stop: a text of 1025 characters is too long, the limit is 1024"),
    "stops": ({"stop": ["a"] * 65}, "stop: has 65 items, the limit is 64"),
    "session": ({"session_id": -2}, "session_id: must be from -1 to 9223372036854775807, got -2"),
    "bias key": (
        {"logit_bias": {"a": 1}},
        "Found token_id in logit_bias that is not an integer or string representing an integer",
    ),
    "top_logprobs alone": (
        {"top_logprobs": 5},
        "Invalid logprobs(False)/top_logprobs(5) requested when logprobs_mode is enabled in engine configuration.",
    ),
    "negative top_logprobs": (
        {"top_logprobs": -1, "logprobs": True},
        "Invalid logprobs(True)/top_logprobs(-1) requested when logprobs_mode is enabled in engine configuration.",
    ),
    "many top_logprobs": (
        {"top_logprobs": 101, "logprobs": True},
        "top_logprobs: must be from 0 to 100, got 101",
    ),
    "no template": (
        {"do_preprocess": False},
        "do_preprocess: without the template, messages must be one text",
    ),
    "role": (
        {"messages": [{"role": "boss", "content": ""}]},
        "messages[0].role: 'boss' is not one of system, developer, user, assistant, tool, function",
    ),
    "message": ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    "part": ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0]"),
    "pattern": (
        {"response_format": {"type": "regex_schema"}},
        "response_format: `regex_schema` needs a pattern, a text",
    ),
    "schema": ({"response_format": {"type": "json_schema"}}, "response_format: `json_schema` needs a schema"),
    "messages": (
        {"messages": HI * (limits.MAX_MESSAGES + 1)},
        "messages: has 10001 items, the limit is 10000",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    body, words = REFUSED[case]
    with pytest.raises(InvalidRequest) as error:
        requested_session(ChatRequest.model_validate({"model": "m", "messages": HI} | body).session_id)
        chat(**body)
    assert words in error.value.message


def test_images_of_a_prompt_are_at_their_tokens_or_before_it() -> None:
    one, two = ImagePart("x", "image_data[0]"), ImagePart("y", "image_data[1]")
    both = ["x", {"url": "y"}]
    assert generate(prompt="a", image_data="x").prompt == PartsPrompt((one, TextPart("a")))
    assert generate(prompt="a", image_data=both).prompt == PartsPrompt((one, two, TextPart("a")))
    placed = generate(prompt="<IMAGE_TOKEN>a<IMAGE_TOKEN>b", image_data=both).prompt
    assert placed == PartsPrompt((one, TextPart("a"), two, TextPart("b")))
    with pytest.raises(InvalidRequest, match="2 images for 1 places"):
        generate(prompt="a<IMAGE_TOKEN>", image_data=both)
    with pytest.raises(InvalidRequest, match="not input_ids"):
        generate(input_ids=[1], image_data="x")


@pytest.mark.parametrize("role", ["tool", "function"])
def test_an_image_from_a_tool_has_words_for_models_without_sight(role: str) -> None:
    turn = {"role": role, "content": [{"type": "image_url", "image_url": "u"}]}
    (message,) = chat_prompt(messages=[turn]).messages
    assert isinstance(message.content, tuple)
    (image,) = message.content
    assert isinstance(image, ImagePart)
    assert (image.url, image.note) == ("u", "(The tool gave an image here, and this model reads text only.)")


def test_images_are_left_to_the_template() -> None:
    assert generate(prompt="a", image_data=[]).prompt == TextPrompt("a")
    parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "u"}}]
    message = chat_prompt(messages=[{"role": "user", "content": parts}]).messages[0]
    assert message.content == (TextPart("see"), ImagePart("u", "messages[0].content[1].image_url"))
    with pytest.raises(UnsupportedContent, match="'input_audio' is not supported"):
        chat(messages=[{"role": "user", "content": [{"type": "input_audio"}]}])


@pytest.mark.parametrize("body", [{}, {"messages": HI}, {"model": None, "messages": HI}, {"model": "m"}])
def test_model_and_messages_are_needed(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ChatRequest.model_validate(body)


def test_messages_as_a_text_are_a_prompt() -> None:
    for do_preprocess in (True, False):
        assert chat(messages="Hi", do_preprocess=do_preprocess).prompt == TextPrompt("Hi")


def test_messages_of_all_roles() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"é": 1}}}
    messages = [
        {"role": "developer", "content": "d"},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "hm"},
        {"role": "tool", "tool_call_id": "c", "content": "r", "name": "f"},
    ]
    assert chat_prompt(messages=messages).messages == (
        Message(role="system", content="d"),
        Message(
            role="assistant",
            tool_calls=(ToolCall("c", FunctionCall("f", '{"é": 1}')),),
            reasoning_content="hm",
        ),
        Message(role="tool", content="r", name="f", tool_call_id="c"),
    )


THINKING: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "unsaid": ({}, {}, True),
    "off": ({"enable_thinking": False}, {"enable_thinking": False}, False),
    "on": ({"enable_thinking": True}, {"enable_thinking": True}, True),
    "off in the kwargs": (
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"enable_thinking": False},
        False,
    ),
    "the kwargs win": (
        {"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": False, "x": 1}},
        {"enable_thinking": False, "x": 1},
        False,
    ),
    "a null does not": (
        {"enable_thinking": False, "chat_template_kwargs": {"enable_thinking": None}},
        {"enable_thinking": False},
        False,
    ),
    "effort": ({"reasoning_effort": "low"}, {"reasoning_effort": "low"}, True),
}


@pytest.mark.parametrize("case", THINKING)
def test_thinking(case: str) -> None:
    body, kwargs, split = THINKING[case]
    prompt = chat_prompt(**body)
    assert (prompt.template_kwargs, prompt.split_thoughts) == (kwargs, split)


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ("auto", ToolChoice("auto")),
        (None, ToolChoice("auto")),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "function": {"name": "f"}}, ToolChoice("named", "f")),
    ],
)
def test_tools(choice: object, wanted: ToolChoice) -> None:
    prompt = chat_prompt(tools=TOOLS, tool_choice=choice)
    assert [tool.name for tool in prompt.tools] == ["f"]
    assert prompt.tool_choice == wanted


@pytest.mark.parametrize(
    ("wanted", "constraint"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, JsonObjectConstraint()),
        ({"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}, JsonSchemaConstraint({})),
        ({"type": "regex_schema", "regex_schema": "a+"}, RegexConstraint("a+")),
    ],
)
def test_response_format(wanted: dict[str, Any], constraint: object) -> None:
    assert chat(response_format=wanted).constraint == constraint


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ({}, None),
        ({"logprobs": True}, None),
        ({"logprobs": True, "top_logprobs": 0}, None),
        ({"logprobs": True, "top_logprobs": 2}, 3),
    ],
)
def test_logprobs_need_both_fields(body: dict[str, Any], wanted: int | None) -> None:
    assert chat(**body).logprobs == wanted


def test_special_tokens() -> None:
    for request in (
        chat(skip_special_tokens=False),
        generate(prompt="a", skip_special_tokens=False),
        *completions(skip_special_tokens=False),
    ):
        assert not request.skip_special_tokens
    assert chat(skip_special_tokens=None).skip_special_tokens


@pytest.mark.parametrize(("given", "wanted"), [(None, None), (-1, None), (0, None), (7, 7)])
def test_sessions(given: int | None, wanted: int | None) -> None:
    assert requested_session(given) == wanted


@pytest.mark.parametrize("token", [-1, 10])
def test_bias_outside_of_the_vocabulary(token: int) -> None:
    check_bias({0: 1.0, 9: 1.0}, 10)
    with pytest.raises(InvalidRequest) as error:
        check_bias({token: 1.0}, 10)
    assert error.value.message == f"token_id {token} in logit_bias contains out-of-vocab token id"
