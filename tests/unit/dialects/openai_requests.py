"""Generation requests parsed from bodies of the OpenAI dialect."""

from __future__ import annotations

from typing import Any

from jan_serve.core.request import (
    ChatPrompt,
    GenerationRequest,
    SamplingParams,
)
from jan_serve.dialects.openai.chat.parse import chat_request
from jan_serve.dialects.openai.chat.wire import CreateChatCompletionRequest
from jan_serve.dialects.openai.completions import CreateCompletionRequest, completion_requests

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
