"""Chat request → Job. Pure."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence

from jan_serve.core.messages import FunctionCall, Message, Tool, ToolCall
from jan_serve.core.request import ChatPrompt
from jan_serve.dialects.ollama.chat.wire import OllamaChatRequest, SentCall, SentMessage
from jan_serve.dialects.ollama.parse_common import Job, content_of, job_of


def chat_job(body: OllamaChatRequest) -> Job:
    """Raises InvalidRequest."""
    tools = tuple(
        Tool(
            name=tool.function.name,
            description=tool.function.description,
            parameters=tool.function.parameters or {},
        )
        for tool in body.tools or ()
    )
    return job_of(body, ChatPrompt(messages=tuple(messages_of(body.messages or ())), tools=tools), "chat")


def messages_of(sent: Sequence[SentMessage]) -> Iterator[Message]:
    """Results of tools get the id of their call: the one they name, else the first unanswered one of the last turn."""
    ids = (f"call_{number}" for number in itertools.count())
    unanswered: list[ToolCall] = []
    for index, message in enumerate(sent):
        content = content_of(message.content or "", message.images, f"messages[{index}].images")
        role = message.role.lower()
        if role == "tool":
            call = _answered(message, unanswered)
            if call is not None and call in unanswered:
                unanswered.remove(call)
            yield Message(
                role=role,
                content=content,
                name=message.tool_name or (call.function.name if call is not None else None),
                tool_call_id=call.id if call is not None else message.tool_call_id,
            )
            continue
        calls = tuple(_call(call, ids) for call in message.tool_calls or ())
        if role == "assistant":
            unanswered = list(calls)
        yield Message(
            role=role,
            content=content,
            tool_calls=calls,
            reasoning_content=message.thinking or None,
        )


def _answered(message: SentMessage, unanswered: Sequence[ToolCall]) -> ToolCall | None:
    """The call that a result is for, None if there is none."""
    if message.tool_call_id:
        return next((call for call in unanswered if call.id == message.tool_call_id), None)
    named = (call for call in unanswered if call.function.name == message.tool_name)
    return next(named, unanswered[0] if unanswered and not message.tool_name else None)


def _call(call: SentCall, ids: Iterator[str]) -> ToolCall:
    arguments = call.function.arguments
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return ToolCall(call.id or next(ids), FunctionCall(call.function.name, text))
