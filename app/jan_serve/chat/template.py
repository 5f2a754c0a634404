"""Renders a ChatPrompt with the Jinja chat template of the model's GGUF file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from jan_serve.chat.chat_format import ChatFormat
from jan_serve.chat.chatml import CHATML
from jan_serve.chat.detect import detect_format, knows_tools, writes_calls
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
from jan_serve.chat.tool_instructions import joined_content, with_calls_as_text, with_tools_as_text
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
    prompt, partial = _split_partial_answer(_adapted(prompt, chat_format, facts.source))
    text = rendered(compiled(source), _values(prompt, source, chat_format, facts, now))
    return text if partial is None else text + _partial_answer(partial, chat_format, text)


def _adapted(prompt: ChatPrompt, chat_format: ChatFormat, template: str | None) -> ChatPrompt:
    """Rewrite parts that the template cannot show: tools and calls become text, parallel calls separate turns, system
    messages part of others, and turns of one role in a row one turn.
    """
    traits = traits_of(template or CHATML)
    messages, tools = prompt.messages, prompt.tools
    if traits.system_role and not traits.late_system:
        messages = _with_one_system(messages)
    if not knows_tools(template):
        messages = with_tools_as_text(messages, tools, chat_format, calls_too=not writes_calls(template))
        tools = ()
    elif not traits.calls:
        messages = with_calls_as_text(messages, chat_format)
    elif not traits.parallel_calls:
        messages = _one_call_a_turn(messages)
    if not traits.system_role:
        messages = _with_system_in_user(messages)
    if not traits.repeated_turns:
        messages = _with_turns_merged(messages)
    return msgspec.structs.replace(prompt, messages=messages, tools=tools)


def _one_call_a_turn(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Split turns of several calls into turns of one call, each followed by its result.

    Call ids need to differ within a turn only: agents count them from 0 in each.
    """
    split: list[Message] = []
    moved: set[int] = set()
    for position, message in enumerate(messages):
        if id(message) in moved:
            continue
        if len(message.tool_calls) < 2:
            split.append(message)
            continue
        results = {result.tool_call_id: result for result in _results_of_turn(messages, position)}
        for number, call in enumerate(message.tool_calls):
            first = message if number == 0 else Message(role="assistant")
            split.append(msgspec.structs.replace(first, tool_calls=(call,)))
            result = results.pop(call.id, None)
            if result is not None:
                split.append(result)
                moved.add(id(result))
    return tuple(split)


def _results_of_turn(messages: tuple[Message, ...], position: int) -> Iterator[Message]:
    """The results after a turn with calls, up to the next turn of the assistant."""
    for message in messages[position + 1 :]:
        if message.role == "assistant":
            return
        if message.tool_call_id is not None:
            yield message


def _with_system_in_user(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Prepend system messages to the next user message."""
    merged: list[Message] = []
    pending: list[Message] = []
    for message in messages:
        if message.role == "system":
            pending.append(message)
        elif pending and message.role == "user":
            content = joined_content(*(each.content for each in pending), message.content)
            merged.append(msgspec.structs.replace(message, content=content))
            pending = []
        else:
            merged.append(message)
    if pending:
        merged.append(Message(role="user", content=joined_content(*(each.content for each in pending))))
    return tuple(merged)


def _with_one_system(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Move the system messages before the first answer to the front, as one; later ones become part of a user's turn.

    Later ones keep their place, so that what is before them stays in the prefix cache.
    """
    if all(message.role != "system" for message in messages[1:]):
        return messages
    instructions: list[Message] = []
    turns: list[Message] = []
    answered = reminded = False
    for message in messages:
        if message.role == "system" and not answered:
            instructions.append(message)
            continue
        reminds = message.role == "system"
        turn = _reminder(message) if reminds else message
        if turns and (reminds or reminded) and turns[-1].role == turn.role:
            turns[-1] = _merged(turns[-1], turn)
        else:
            turns.append(turn)
        answered = answered or message.role == "assistant"
        reminded = reminds
    if not instructions:
        return tuple(turns)
    content = joined_content(*(message.content for message in instructions))
    return (msgspec.structs.replace(instructions[0], content=content), *turns)


def _reminder(message: Message) -> Message:
    content = joined_content("<system-reminder>", message.content, "</system-reminder>", between="\n")
    return Message(role="user", content=content)


def _with_turns_merged(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Merge turns of the user, and of the assistant, in a row. Calls end a turn: their results follow."""
    merged: list[Message] = []
    for message in messages:
        last = merged[-1] if merged else None
        if (
            last is not None
            and last.role == message.role
            and message.role in ("user", "assistant")
            and not last.tool_calls
        ):
            merged[-1] = _merged(last, message)
        else:
            merged.append(message)
    return tuple(merged)


def _merged(first: Message, second: Message) -> Message:
    thoughts = [turn.reasoning_content for turn in (first, second) if turn.reasoning_content]
    return msgspec.structs.replace(
        first,
        content=joined_content(first.content, second.content),
        name=first.name if first.name == second.name else None,
        tool_calls=second.tool_calls,
        reasoning_content="\n\n".join(thoughts) or None,
    )


def _split_partial_answer(prompt: ChatPrompt) -> tuple[ChatPrompt, Message | None]:
    last = prompt.messages[-1] if len(prompt.messages) > 1 else None
    if not prompt.continues_answer or last is None or last.role != "assistant" or last.tool_calls:
        return prompt, None
    return msgspec.structs.replace(prompt, messages=prompt.messages[:-1], opens_answer=True), last


def _partial_answer(message: Message, chat_format: ChatFormat, text: str) -> str:
    """The partial answer, after its thought if it has one."""
    thought = chat_format.thought
    pieces: list[str] = []
    if thought is not None:
        is_open = chat_format.prompt_opens_thought(text)
        after_thought = chat_format.calls.after_thought or "\n\n"
        if message.reasoning_content:
            pieces += [] if is_open else [thought.opens[0], "\n"]
            pieces += [message.reasoning_content, "\n", thought.closes[0], after_thought]
        elif is_open:
            pieces += [thought.closes[0], after_thought]
    return "".join([*pieces, chat_format.text_opens, text_of(message, 0)])


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
