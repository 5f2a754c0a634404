"""Chat request → GenerationRequest. Pure; all functions raise InvalidRequest."""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from jan_serve.core import messages as core
from jan_serve.core.request import ChatPrompt, GenerationRequest, Prompt, TextPrompt
from jan_serve.dialects.lmdeploy.chat import wire
from jan_serve.dialects.lmdeploy.common import (
    candidates,
    choice_count,
    logit_bias,
    request_of,
    stop_conditions,
    token_limit,
)
from jan_serve.dialects.shared.thinking_fields import earlier_thought, thinking_budget, thinking_switch
from jan_serve.errors import InvalidRequest, UnsupportedContent
from jan_serve.http.errors import invalid_value

_ROLES: Final[dict[str, core.Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "function",
}
_RESULTS: Final = ("tool", "function")

_MESSAGE: Final = TypeAdapter(wire.Message)
_PART: Final[TypeAdapter[wire.TextPart | wire.ImagePart]] = TypeAdapter(wire.TextPart | wire.ImagePart)


def chat_request(body: wire.ChatRequest) -> GenerationRequest:
    logprobs, n = _logprobs(body), choice_count(body.n)
    limit = token_limit(body.max_completion_tokens, body.max_tokens)
    return request_of(
        body,
        _prompt(body),
        stop_conditions(body, max_tokens=limit, min_tokens=body.min_new_tokens),
        logit_bias=logit_bias(body.logit_bias),
        model=body.model,
        n=n,
        best_of=n,
        logprobs=logprobs,
        vocabulary_entries=logprobs is not None,
    )


def _logprobs(body: wire.ChatRequest) -> int | None:
    """Both fields must ask. One more than requested, because the chosen token is left out of its own list."""
    requested = body.top_logprobs or 0
    if requested < 0 or (requested and not body.logprobs):
        raise InvalidRequest(
            f"Invalid logprobs({body.logprobs})/top_logprobs({str(requested)[:20]}) requested when logprobs_mode is"
            " enabled in engine configuration.",
            param="top_logprobs",
        )
    count = candidates(requested, "top_logprobs")
    return None if count is None else count + 1


def _prompt(body: wire.ChatRequest) -> Prompt:
    if isinstance(body.messages, str):
        return TextPrompt(body.messages)
    if body.do_preprocess is False:
        raise InvalidRequest(
            "do_preprocess: without the template, messages must be one text", param="do_preprocess"
        )
    tools, choice = _tools(body)
    kwargs = _template_kwargs(body)
    budget = thinking_budget(body)
    return ChatPrompt(
        messages=tuple(_message(item, index) for index, item in enumerate(body.messages)),
        tools=tools,
        tool_choice=choice,
        split_thoughts=kwargs.get("enable_thinking") is not False,
        reasoning_budget=budget if budget is not None and budget >= 0 else None,
        template_kwargs=kwargs,
    )


def _template_kwargs(body: wire.ChatRequest) -> dict[str, Any]:
    """chat_template_kwargs takes precedence, except for a null enable_thinking in it."""
    kwargs = dict(body.chat_template_kwargs or {})
    switch = thinking_switch(body)
    if switch is not None and kwargs.get("enable_thinking") is None:
        kwargs["enable_thinking"] = switch
    if body.reasoning_effort is not None:
        kwargs.setdefault("reasoning_effort", body.reasoning_effort)
    return kwargs


def _tools(body: wire.ChatRequest) -> tuple[tuple[core.Tool, ...], core.ToolChoice]:
    tools = tuple(
        core.Tool(
            name=tool.function.name,
            description=tool.function.description,
            parameters=tool.function.parameters or core.NO_ARGUMENTS,
        )
        for tool in body.tools or ()
    )
    match body.tool_choice:
        case None:
            return tools, core.ToolChoice("auto")
        case wire.ToolChoice() as choice:
            return tools, core.ToolChoice("named", choice.function.name)
        case mode:
            return tools, core.ToolChoice(mode if tools or mode == "required" else "auto")


def _message(item: dict[str, Any], index: int) -> core.Message:
    try:
        message = _MESSAGE.validate_python(item)
    except ValidationError as error:
        raise invalid_value(f"messages[{index}]", error.errors(), item) from None
    role = _ROLES.get(message.role)
    if role is None:
        raise InvalidRequest(
            f"messages[{index}].role: {message.role[:40]!r} is not one of {', '.join(_ROLES)}",
            param="messages",
        )
    return core.Message(
        role=role,
        content=_content(message.content, index, core.IMAGE_NOTE if role in _RESULTS else None),
        name=message.name,
        tool_calls=tuple(_call(call) for call in message.tool_calls or ()),
        tool_call_id=message.tool_call_id,
        reasoning_content=earlier_thought(message),
    )


def _content(
    content: str | list[dict[str, Any]] | None, index: int, note: str | None
) -> str | tuple[core.ContentPart, ...] | None:
    if content is None or isinstance(content, str):
        return content
    return tuple(
        _part(part, f"messages[{index}].content[{part_index}]", note)
        for part_index, part in enumerate(content)
    )


def _part(part: dict[str, Any], field: str, note: str | None) -> core.ContentPart:
    kind: object = part.get("type")
    if isinstance(kind, str) and kind not in ("text", "image_url"):
        raise UnsupportedContent(f"{field}: content of type {kind[:40]!r} is not supported", param="messages")
    try:
        known = _PART.validate_python(part)
    except ValidationError as error:
        raise invalid_value(field, error.errors(), part) from None
    if isinstance(known, wire.TextPart):
        return core.TextPart(known.text)
    url = known.image_url if isinstance(known.image_url, str) else known.image_url.url
    return core.ImagePart(url, f"{field}.image_url", note)


def _call(call: wire.ToolCall) -> core.ToolCall:
    arguments = call.function.arguments
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return core.ToolCall(call.id, core.FunctionCall(call.function.name, arguments))
