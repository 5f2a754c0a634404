"""From a ChatPrompt to the text that the model was trained on, by the Jinja chat template that its GGUF file brings."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec

from jan_serve.chat.detect import detect_format, knows_tools, writes_calls
from jan_serve.chat.fallback import CHATML
from jan_serve.chat.formats.format import ChatFormat
from jan_serve.chat.instructions import joined_content, with_calls_as_text, with_tools_as_text
from jan_serve.chat.template_environment import compiled, rendered
from jan_serve.chat.template_traits import traits_of
from jan_serve.chat.template_values import (
    MessageForm,
    template_messages,
    template_tool_choice,
    template_tools,
    text_of,
)
from jan_serve.core.messages import Message
from jan_serve.core.request import ChatPrompt
from jan_serve.core.template import TemplateFacts


@lru_cache(maxsize=32)
def format_of(template: str | None) -> ChatFormat:
    """`detect_format`, remembered: a template is looked through once."""
    return detect_format(template)


def render_prompt(prompt: ChatPrompt, facts: TemplateFacts, now: Callable[[], datetime]) -> str:
    """The prompt as text, ready for its answer; a last message of the assistant is what the answer goes on from.

    Uses CPU and memory for as long as the template wants: see `template_environment`. Raises TemplateError with the
    template's own words where it refused the messages, and UnsupportedContent.
    """
    source = facts.source or CHATML
    form = format_of(facts.source)
    prompt, begun = _without_begun_answer(_shown(prompt, form, facts.source))
    text = rendered(compiled(source), _values(prompt, source, form, facts, now))
    return text if begun is None else text + _begun_answer(begun, form, text)


def _shown(prompt: ChatPrompt, form: ChatFormat, template: str | None) -> ChatPrompt:
    """What the template can show: tools as instructions and a system message inside the user's, where it must be."""
    messages, tools = prompt.messages, prompt.tools
    if not knows_tools(template):
        messages = with_tools_as_text(messages, tools, form, calls_too=not writes_calls(template))
        tools = ()
    elif not (traits := traits_of(template or CHATML)).calls:
        messages = with_calls_as_text(messages, form)
    elif not traits.parallel_calls:
        messages = _one_call_a_turn(messages)
    if not traits_of(template or CHATML).system_role:
        messages = _folded(messages)
    return msgspec.structs.replace(prompt, messages=messages, tools=tools)


def _one_call_a_turn(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Turns of several calls become turns of one, each with its result behind it."""
    results = {message.tool_call_id: message for message in messages if message.tool_call_id is not None}
    split: list[Message] = []
    moved: set[str] = set()
    for message in messages:
        if message.tool_call_id is not None and message.tool_call_id in moved:
            continue
        if len(message.tool_calls) < 2:
            split.append(message)
            continue
        for number, call in enumerate(message.tool_calls):
            first = message if number == 0 else Message(role="assistant")
            split.append(msgspec.structs.replace(first, tool_calls=(call,)))
            if call.id in results and call.id not in moved:
                split.append(results[call.id])
                moved.add(call.id)
    return tuple(split)


def _folded(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """System messages become the beginning of the user's message that follows them."""
    folded: list[Message] = []
    waiting: list[Message] = []
    for message in messages:
        if message.role == "system":
            waiting.append(message)
        elif waiting and message.role == "user":
            content = joined_content(*(each.content for each in waiting), message.content)
            folded.append(msgspec.structs.replace(message, content=content))
            waiting = []
        else:
            folded.append(message)
    if waiting:
        folded.append(Message(role="user", content=joined_content(*(each.content for each in waiting))))
    return tuple(folded)


def _without_begun_answer(prompt: ChatPrompt) -> tuple[ChatPrompt, Message | None]:
    last = prompt.messages[-1] if len(prompt.messages) > 1 else None
    if last is None or last.role != "assistant" or last.tool_calls:
        return prompt, None
    return msgspec.structs.replace(prompt, messages=prompt.messages[:-1]), last


def _begun_answer(message: Message, form: ChatFormat, text: str) -> str:
    """The answer so far, behind its thought if there is one."""
    thought = form.thought
    pieces: list[str] = []
    if thought is not None:
        is_open = form.prompt_opens_thought(text)
        if message.reasoning_content:
            pieces += [] if is_open else [thought.opens[0], "\n"]
            pieces += [message.reasoning_content, "\n", thought.closes[0], form.calls.after_thought or "\n\n"]
        elif is_open:
            pieces += [thought.closes[0], form.calls.after_thought or "\n\n"]
    return "".join([*pieces, form.text_opens, text_of(message, 0)])


def _values(
    prompt: ChatPrompt, source: str, form: ChatFormat, facts: TemplateFacts, now: Callable[[], datetime]
) -> dict[str, Any]:
    traits = traits_of(source)
    shape = MessageForm(
        object_arguments=traits.object_arguments,
        list_content=traits.list_content,
        null_content=traits.null_content,
        descriptions=traits.descriptions,
        thought_field=form.thought_field,
    )
    tools = template_tools(prompt.tools, shape)
    if tools is None and not traits.no_tools:
        tools = []

    def strftime_now(form: str) -> str:
        return now().strftime(form)

    values: dict[str, Any] = {
        # FireFunction's template asks for these two.
        "functions": json.dumps([tool["function"] for tool in tools], indent=4) if tools else "[]",
        "datetime": now().strftime("%Y-%m-%d"),
        **prompt.template_kwargs,
        "messages": template_messages(prompt.messages, shape),
        "tools": tools,
        "tool_choice": template_tool_choice(prompt.tool_choice),
        "bos_token": facts.bos_token,
        "eos_token": facts.eos_token,
        "add_generation_prompt": True,
        "strftime_now": strftime_now,
    }
    return values
