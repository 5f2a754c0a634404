"""Chat request → GenerationRequest. Pure."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from jan_serve.core import messages as core
from jan_serve.core.request import ChatPrompt, GenerationRequest
from jan_serve.dialects.openai.chat import wire
from jan_serve.dialects.openai.parse_common import (
    choice_counts,
    document_part,
    reasoning_budget,
    request_of,
    stop_conditions,
    template_kwargs,
)
from jan_serve.dialects.openai.responses.custom_input import custom_arguments
from jan_serve.dialects.openai.wire_common import Effort
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.generation_fields import require
from jan_serve.dialects.shared.thinking_fields import UNREAD_THOUGHT, earlier_thought, value_at
from jan_serve.dialects.shared.wire_types import wrong
from jan_serve.errors import InvalidRequest, UnsupportedContent

UNLIMITED = -1


def chat_request(body: wire.CreateChatCompletionRequest) -> GenerationRequest:
    n, _ = choice_counts(body.n, None, 1)
    effort = body.reasoning_effort or _effort(body)
    return request_of(
        body,
        ChatPrompt(
            messages=tuple(_message(message, index) for index, message in enumerate(body.messages)),
            tools=_tools(body),
            tool_choice=_tool_choice(body),
            parallel_tool_calls=body.parallel_tool_calls is not False and not uses_functions(body),
            split_thoughts=body.reasoning_format != "none",
            reasoning_budget=reasoning_budget(body, effort),
            opens_answer=body.add_generation_prompt is not False,
            continues_answer=_continues(body),
            template_kwargs=template_kwargs(body, effort),
        ),
        stop_conditions(body, _max_tokens(body), body.stop_sequences or ()),
        n=n,
        best_of=n,
        logprobs=_logprobs(body),
        warnings=tuple(
            f"messages[{index}]: {UNREAD_THOUGHT}"
            for index, message in enumerate(body.messages)
            if isinstance(message, wire.AssistantMessage) and _has_unread_thought(message)
        ),
    )


def _has_unread_thought(message: wire.AssistantMessage) -> bool:
    parts = message.content if isinstance(message.content, list) else ()
    if not (message.reasoning_details or any(isinstance(part, wire.ThoughtPart) for part in parts)):
        return False
    return not (earlier_thought(message) or _without_thoughts(message.content)[1])


def _effort(body: wire.CreateChatCompletionRequest) -> Effort | None:
    effort = value_at(body, "reasoning.effort")
    if effort is not None and effort not in get_args(Effort):
        raise InvalidRequest(
            f"reasoning.effort: must be one of {', '.join(get_args(Effort))}", param="reasoning"
        )
    return effort


def _continues(body: wire.CreateChatCompletionRequest) -> bool:
    if not body.continue_final_message:
        return body.continue_final_message is None and body.add_generation_prompt is not False
    if body.add_generation_prompt:
        raise wrong(
            "continue_final_message", "contradicts `add_generation_prompt`: an answer is continued or begun"
        )
    last = body.messages[-1] if body.messages else None
    if not isinstance(last, wire.AssistantMessage) or _tool_calls(last):
        raise wrong("continue_final_message", "needs a last message of the assistant, without calls")
    return True


def uses_functions(body: wire.CreateChatCompletionRequest) -> bool:
    """Whether the request uses the older `functions`, which allow one call per answer."""
    return bool(body.functions) and not body.tools


def _max_tokens(body: wire.CreateChatCompletionRequest) -> int | None:
    names = ("max_completion_tokens", "max_tokens", "max_output_tokens")
    for name in names:
        value: int | None = getattr(body, name)
        if value is not None:
            if value < UNLIMITED:
                raise wrong(
                    name, f"must be {UNLIMITED} (until the context ends) or more, got {str(value)[:20]}"
                )
            return value if value > 0 else None
    return None


def _logprobs(body: wire.CreateChatCompletionRequest) -> int | None:
    """`logprobs` asks for those of the chosen tokens, `top_logprobs` for so many others beside each."""
    if body.top_logprobs is not None:
        require("top_logprobs", body.top_logprobs, 0, limits.MAX_LOGPROBS)
    return (body.top_logprobs or 0) if body.logprobs else None


def _message(message: wire.ChatMessage, index: int) -> core.Message:
    is_result = isinstance(message, wire.ToolMessage | wire.FunctionMessage)
    own, thought = message.content, None
    if isinstance(message, wire.AssistantMessage):
        own, thought = _without_thoughts(own)
    content = _content(own, f"messages[{index}].content", core.IMAGE_NOTE if is_result else None)
    match message:
        case wire.SystemMessage():
            return core.Message(role="system", content=content, name=message.name)
        case wire.UserMessage():
            return core.Message(role="user", content=content, name=message.name)
        case wire.AssistantMessage():
            return core.Message(
                role="assistant",
                content=_with_refusal(content, message.refusal),
                name=message.name,
                tool_calls=_tool_calls(message),
                reasoning_content=earlier_thought(message) or thought,
            )
        case wire.ToolMessage():
            return core.Message(
                role="tool", content=content, tool_call_id=message.tool_call_id, name=message.name
            )
        case wire.FunctionMessage():
            return core.Message(role="function", content=content, name=message.name)


def _without_thoughts(content: wire.Content) -> tuple[wire.Content, str | None]:
    """The content without the thoughts that are parts of it, and these as paragraphs."""
    if content is None or isinstance(content, str):
        return content, None
    thoughts = [part for part in content if isinstance(part, wire.ThoughtPart)]
    texts = [
        "".join(piece.text for piece in part.thinking)
        if isinstance(part.thinking, list)
        else part.thinking or part.text or ""
        for part in thoughts
    ]
    rest: list[wire.ContentPart] = [part for part in content if not isinstance(part, wire.ThoughtPart)]
    return rest, "\n\n".join(filter(None, texts)) or None


def _content(
    content: str | list[Any] | None, field: str, note: str | None
) -> str | tuple[core.ContentPart, ...] | None:
    """note: see core.messages.ImagePart."""
    if content is None or isinstance(content, str):
        return content
    return tuple(_part(part, f"{field}[{index}]", note) for index, part in enumerate(content))


def _with_refusal(
    content: str | tuple[core.ContentPart, ...] | None, refusal: str | None
) -> str | tuple[core.ContentPart, ...] | None:
    """The refusal is the text of a turn without any, and else follows it."""
    if not refusal:
        return content
    if not content:
        return refusal
    parts = (core.TextPart(content),) if isinstance(content, str) else content
    return (*parts, core.TextPart(refusal))


def _part(part: wire.ContentPart, field: str, note: str | None) -> core.ContentPart:
    match part:
        case wire.TextPart():
            return core.TextPart(part.text)
        case wire.RefusalPart():
            return core.TextPart(part.refusal)
        case wire.ImagePart():
            url = part.image_url if isinstance(part.image_url, str) else part.image_url.url
            return core.ImagePart(url, f"{field}.image_url", note)
        case wire.AudioPart():
            return core.AudioPart(part.input_audio.data, f"{field}.input_audio.data")
        case wire.FilePart(file=file):
            return document_part(
                file.file_data, file.filename, f"{field}.file.file_data", of_result=note is not None
            )
        case wire.ThoughtPart():
            raise InvalidRequest(
                f"{field}: a thought belongs in a message of the assistant", param="messages"
            )
        case wire.OtherPart():
            raise UnsupportedContent(
                f"messages: content of type {part.type} is not supported", param="messages"
            )


def _tool_calls(message: wire.AssistantMessage) -> tuple[core.ToolCall, ...]:
    calls = [core.ToolCall(call.id or "", _called(call)) for call in message.tool_calls or ()]
    if message.function_call is not None and not calls:
        # The older form has no ids: the result names the function instead.
        call = message.function_call
        calls = [core.ToolCall(f"call_{call.name}", core.FunctionCall(call.name, _arguments(call)))]
    return tuple(calls)


def _called(call: wire.ToolCall | wire.CustomToolCall) -> core.FunctionCall:
    if isinstance(call, wire.CustomToolCall):
        return core.FunctionCall(call.custom.name, custom_arguments(call.custom.input))
    return core.FunctionCall(call.function.name, _arguments(call.function))


def _arguments(call: wire.FunctionCall) -> str:
    if isinstance(call.arguments, str):
        return call.arguments
    return msgspec.json.encode(call.arguments or {}).decode()


def _tools(body: wire.CreateChatCompletionRequest) -> tuple[core.Tool, ...]:
    functions = [tool.function for tool in body.tools or ()] or list(body.functions or ())
    return tuple(
        core.Tool(
            name=function.name,
            description=function.description,
            parameters=function.parameters or core.NO_ARGUMENTS,
            strict=function.strict,
        )
        for function in functions
    )


def _tool_choice(body: wire.CreateChatCompletionRequest) -> core.ToolChoice:
    choice = body.tool_choice if body.tool_choice is not None else body.function_call
    match choice:
        case None:
            return core.ToolChoice("auto")
        case wire.NamedToolChoice():
            return core.ToolChoice("named", choice.function.name)
        case wire.AllowedToolChoice():
            allowed = choice.allowed_tools
            return core.ToolChoice(
                allowed.mode, among=frozenset(tool.function.name for tool in allowed.tools)
            )
        case wire.FunctionName():
            return core.ToolChoice("named", choice.name)
        case mode:
            return core.ToolChoice(mode)
