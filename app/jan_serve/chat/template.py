"""Renders a ChatPrompt with the Jinja chat template of the model's GGUF file."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from jan_serve.chat.chat_format import ChatFormat
from jan_serve.chat.chatml import CHATML
from jan_serve.chat.detect import detect_format, knows_tools, writes_calls
from jan_serve.chat.history import shown_history
from jan_serve.chat.template_sandbox import compiled, rendered
from jan_serve.chat.template_traits import traits_of
from jan_serve.chat.template_values import (
    template_effort,
    template_messages,
    template_tool_choice,
    template_tools,
    text_of,
    thinking_values,
)
from jan_serve.chat.text_before_calls import set_apart, with_texts
from jan_serve.core.messages import Message
from jan_serve.core.request import THINKING_SWITCH, ChatPrompt
from jan_serve.core.template import TemplateFacts


def render_prompt(prompt: ChatPrompt, facts: TemplateFacts, now: Callable[[], datetime]) -> str:
    """The prompt as text, up to the start of the answer; a final assistant message is continued.

    Time and memory depend on the template: see `template_sandbox`. Raises UnsupportedContent, and TemplateError,
    with the template's own message if it rejects the messages.
    """
    source = facts.source or CHATML
    chat_format = detect_format(facts.source)
    traits = traits_of(source)
    messages, tools = shown_history(
        prompt.messages,
        prompt.tools,
        traits,
        chat_format,
        knows_tools=knows_tools(facts.source),
        writes_calls=writes_calls(facts.source),
    )
    messages, partial = _split_partial_answer(messages) if prompt.continues_answer else (messages, None)
    messages, texts = (messages, []) if traits.call_opening is None else set_apart(messages)
    opens, kwargs = prompt.opens_answer or partial is not None, prompt.template_kwargs
    if partial is not None and prompt.asks_for_thoughts is None and _has_thought(partial, chat_format):
        kwargs = {**kwargs, THINKING_SWITCH: True}
    prompt = msgspec.structs.replace(
        prompt, messages=messages, tools=tools, opens_answer=opens, template_kwargs=kwargs
    )
    text = rendered(compiled(source), _values(prompt, source, chat_format, facts, now))
    text = with_texts(text, texts, traits.call_opening or "", chat_format)
    return text if partial is None else text + _partial_answer(partial, chat_format, text)


def _split_partial_answer(messages: tuple[Message, ...]) -> tuple[tuple[Message, ...], Message | None]:
    last = messages[-1] if len(messages) > 1 else None
    if last is None or last.role != "assistant" or last.tool_calls:
        return messages, None
    return messages[:-1], last


def _opening(message: Message, chat_format: ChatFormat) -> str | None:
    """The mark by which the content begins with a thought."""
    thought, content = chat_format.thought, text_of(message, 0).lstrip()
    marks = (mark.strip() for mark in thought.opens) if thought is not None else ()
    return next((mark for mark in marks if content.startswith(mark)), None)


def _has_thought(message: Message, chat_format: ChatFormat) -> bool:
    return bool(message.reasoning_content) or _opening(message, chat_format) is not None


def _partial_answer(message: Message, chat_format: ChatFormat, text: str) -> str:
    """The partial answer, after its thought if it has one, there or at the beginning of its content."""
    thought, content = chat_format.thought, text_of(message, 0)
    if thought is None:
        return chat_format.text_opens + content
    is_open = chat_format.prompt_opens_thought(text)
    after_thought = chat_format.calls.after_thought or "\n\n"
    opening = _opening(message, chat_format)
    pieces: list[str] = []
    if message.reasoning_content:
        pieces += [] if is_open else [thought.opens[0], "\n"]
        pieces += [message.reasoning_content, "\n", thought.closes[0], after_thought]
    elif opening is not None:
        return content.lstrip().removeprefix(opening).lstrip() if is_open else content
    elif is_open:
        pieces += [thought.closes[0], after_thought]
    return "".join([*pieces, chat_format.text_opens, content])


def _values(
    prompt: ChatPrompt,
    source: str,
    chat_format: ChatFormat,
    facts: TemplateFacts,
    now: Callable[[], datetime],
) -> dict[str, Any]:
    traits = traits_of(source)
    tools = template_tools(prompt.tools, traits)
    if tools is None and not traits.no_tools:
        tools = []

    def strftime_now(date_format: str) -> str:
        return now().strftime(date_format)

    kwargs = dict(prompt.template_kwargs)
    if "reasoning_effort" in kwargs:
        kwargs["reasoning_effort"] = template_effort(kwargs["reasoning_effort"], traits)
    values: dict[str, Any] = {
        # FireFunction's template reads these two, Llama's the date.
        "functions": json.dumps([tool["function"] for tool in tools], indent=4) if tools else "[]",
        "datetime": strftime_now("%b %d %Y"),
        "date_string": strftime_now("%d %b %Y"),
        **thinking_values(prompt, source),
        **{name: value for name, value in kwargs.items() if name != THINKING_SWITCH or value is not None},
        "messages": template_messages(prompt.messages, traits, chat_format.thought_field),
        "tools": tools,
        "tool_choice": template_tool_choice(prompt.tool_choice),
        "bos_token": facts.bos_token,
        "eos_token": facts.eos_token,
        "add_generation_prompt": prompt.opens_answer,
        "strftime_now": strftime_now,
    }
    return values
