"""The text of a turn with calls, for templates that leave out the one or the other of the two, or show it after them.

The template renders the calls alone, the first with a mark in its name; the text then takes its place before them.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

from jan_serve.chat.chat_format import ChatFormat
from jan_serve.chat.template_traits import PROBE_ID
from jan_serve.chat.template_values import text_of
from jan_serve.core.messages import FunctionCall, Message, ToolCall


class SetApart(msgspec.Struct, frozen=True):
    """The text of a turn, and the mark before the name of its first call."""

    mark: str
    text: str
    call_id: str


def set_apart(messages: tuple[Message, ...]) -> tuple[tuple[Message, ...], list[SetApart]]:
    """The messages without the texts of turns with calls. Raises UnsupportedContent."""
    shown: list[Message] = []
    texts: list[SetApart] = []
    for index, message in enumerate(messages):
        text = text_of(message, index)
        if message.tool_calls and text:
            first, *others = message.tool_calls
            # Derived from the text, so that no word of the chat is one by accident.
            digest = hashlib.sha256(f"{index} {text}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
            apart = SetApart(f"before{digest}", text, first.id)
            function = FunctionCall(apart.mark + first.function.name, first.function.arguments)
            calls = (ToolCall(first.id, function), *others)
            message = msgspec.structs.replace(message, content=None, tool_calls=calls)
            texts.append(apart)
        shown.append(message)
    return tuple(shown), texts


def with_texts(rendered: str, texts: list[SetApart], opening: str, chat_format: ChatFormat) -> str:
    """The prompt with the texts before their calls. opening: as in TemplateTraits."""
    pieces: list[str] = []
    for apart in texts:
        before, mark, rest = rendered.partition(apart.mark)
        if not mark:  # the template leaves the turn out
            continue
        at = _start_of_calls(before, opening.replace(PROBE_ID, apart.call_id), chat_format)
        pieces += [before[:at], _as_written(apart.text, before[at:], chat_format), before[at:]]
        rendered = rest
    text = "".join([*pieces, rendered])
    marks = "|".join(apart.mark for apart in texts)
    return re.sub(marks, "", text) if marks else text


def _start_of_calls(before: str, opening: str, chat_format: ChatFormat) -> int:
    """Where a turn's calls begin, in the prompt before the name of its first call."""
    message = chat_format.calls.after_thought
    if message and message in before:
        return before.rindex(message) + len(message)
    # Some templates count the calls.
    pattern = re.sub(r"\d+", lambda _: r"\d+", re.escape(opening))
    counted = re.search(f"(?:{pattern})$", before[-2 * len(opening) :])
    if counted is not None:
        return len(before) - len(counted[0])
    same = 0
    while same < min(len(before), len(opening)) and before[-1 - same] == opening[-1 - same]:
        same += 1
    return len(before) - same


def _as_written(text: str, opening: str, chat_format: ChatFormat) -> str:
    """The text as the model writes it before calls: in a message of its own where calls have one."""
    message = chat_format.calls.after_thought
    if message and chat_format.thought is not None:
        opens = chat_format.text_before_calls_opens or chat_format.text_opens
        return f"{opens}{text}{chat_format.thought.closes[0]}{message}"
    is_token = re.match(r"\[|<\W", opening) is not None
    return text if is_token or text.endswith("\n") else f"{text}\n"
