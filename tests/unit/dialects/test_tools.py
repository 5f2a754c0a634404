"""Tools as each dialect's requests list them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jan_serve.core.messages import NO_ARGUMENTS
from jan_serve.core.request import ChatPrompt
from jan_serve.dialects.lmdeploy.chat import ChatRequest
from jan_serve.dialects.lmdeploy.chat import chat_request as lmdeploy_request
from jan_serve.dialects.ollama.routes import OllamaChatRequest, chat_job
from jan_serve.dialects.openai.chat.parse import chat_request
from jan_serve.dialects.openai.chat.wire import CreateChatCompletionRequest
from jan_serve.dialects.openai.responses.parse import response_request
from jan_serve.dialects.openai.responses.wire import CreateResponseRequest

Parse = Callable[[dict[str, Any]], Any]


def of_responses(fields: dict[str, Any]) -> Any:
    tools = [{"type": "function"} | tool["function"] for tool in fields["tools"]]
    body = CreateResponseRequest.model_validate({"input": "Hi", "tools": tools})
    return response_request(body, (), body.input).generation


PARSERS: dict[str, Parse] = {
    "openai chat": lambda body: chat_request(CreateChatCompletionRequest.model_validate(body)),
    "openai responses": of_responses,
    "lmdeploy chat": lambda body: lmdeploy_request(ChatRequest.model_validate(body)),
    "ollama chat": lambda body: chat_job(OllamaChatRequest.model_validate(body)).request,
}


@pytest.mark.parametrize("parse", PARSERS.values(), ids=PARSERS)
@pytest.mark.parametrize("fields", [{}, {"parameters": None}, {"parameters": {}}])
def test_a_tool_without_parameters_takes_no_arguments(parse: Parse, fields: dict[str, Any]) -> None:
    tools = [{"type": "function", "function": {"name": "now", **fields}}]
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": tools}
    prompt = parse(body).prompt
    assert isinstance(prompt, ChatPrompt)
    [tool] = prompt.tools
    assert tool.parameters == NO_ARGUMENTS
