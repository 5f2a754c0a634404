"""Compares the prompt of a request with earlier ones of the same client, part by part, while its text is there.

What is kept are hashes: how far a prompt repeats an earlier one, and where it first differs.
"""

from __future__ import annotations

import re
from array import array
from collections import deque
from collections.abc import Sequence
from itertools import chain, takewhile
from typing import Final

import msgspec

from jan_serve.core.messages import ContentPart, Message, TextPart
from jan_serve.core.request import ChatPrompt, PartsPrompt, TextPrompt, TokenPrompt
from jan_serve.core.trace import Difference, PromptParts, RequestTrace, Sign

_KEPT: Final = 512
"""Prompts of all models and clients."""
_SEARCHED_PROMPTS: Final = 32
"""Prompts of a client that are searched for parts of one that goes on where none ended."""
_MAX_LINES: Final = 4096
"""Further lines of a text count as one, and each further message as one line."""
_MAX_MESSAGES: Final = 4096
"""Further messages are not compared."""

_SEARCHED: Final = 2000
"""Characters in which a sign is looked for."""

_LEFT: Final = r"(?:left|remain\w*|used|usage|budget)"
_MONTH: Final = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_SIGNS: Final[tuple[tuple[Sign, str], ...]] = (
    ("billing", r"(?i)billing"),
    ("tokens_left", rf"(?i)\btokens?\b.{{0,40}}\b{_LEFT}\b|\b{_LEFT}\b.{{0,40}}\btokens?\b"),
    (
        "date",
        r"\b(?:19|20)\d\d[-/.]\d\d?[-/.]\d\d?|\b\d\d?[-/.]\d\d?[-/.](?:19|20)?\d\d\b|\b\d\d?:\d\d\b"
        r"|\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b"
        rf"|\b{_MONTH}[a-z]* \d|\b\d\d?\.? {_MONTH}",
    ),
)
"""What a line may hold that changes by itself, in the order in which it is looked for."""
_SIGNED_ROLES: Final = frozenset({"system", "developer", "user"})
"""Clients write such lines into messages of these roles. Others, as results of tools, are one line."""


PlainPrompt = TextPrompt | PartsPrompt | TokenPrompt


class PromptHistory:
    """Bounded; for one event loop."""

    def __init__(self) -> None:
        self._prompts: deque[tuple[tuple[str, str], PromptParts]] = deque(maxlen=_KEPT)

    def compare(self, trace: RequestTrace, model: str, salt: str, prompt: ChatPrompt | PlainPrompt) -> None:
        """Write into the trace which earlier prompt is nearest and where this one differs, and keep this one.

        salt: prompts of others are not compared.
        """
        if isinstance(prompt, ChatPrompt):
            lines, messages = _split(prompt.messages)
            tools = prompt.tools
        else:
            text = _text_of(prompt.parts) if isinstance(prompt, PartsPrompt) else prompt.text
            if isinstance(prompt, TokenPrompt) and not text:
                return
            lines, messages, tools = _lines(text), (), ()
        parts = PromptParts(
            tools=tuple(hash(msgspec.json.encode(tool)) for tool in tools),
            system=array("q", map(hash, lines)),
            messages=array("q", map(hash, messages)),
        )
        for message in messages:
            room = _MAX_LINES - len(parts.lines) if message.role in _SIGNED_ROLES else 0
            parts.lines.extend(map(hash, _text(message).split("\n", max(0, room))))
            parts.ends.append(len(parts.lines))
        owner = (model, salt)
        latest_first = [earlier for key, earlier in reversed(self._prompts) if key == owner]
        trace.parts, trace.nearest = parts, _nearest(latest_first, parts)
        if trace.nearest is not None:
            trace.difference = _difference(trace.nearest, parts, lines, messages)
        self._prompts.append((owner, parts))


def _split(messages: Sequence[Message]) -> tuple[list[str], Sequence[Message]]:
    """The lines of the system text at the start, and the messages after it."""
    leading = list(takewhile(lambda message: message.role in ("system", "developer"), messages))
    return _lines("\n".join(map(_text, leading))), messages[len(leading) :][:_MAX_MESSAGES]


def _lines(text: str) -> list[str]:
    return text.split("\n", _MAX_LINES) if text else []


def _text(message: Message) -> str:
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    return _text_of(content)


def _text_of(parts: Sequence[ContentPart]) -> str:
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))


def _same(left: Sequence[int], right: Sequence[int]) -> int:
    """Number of equal items at the start."""
    if left == right:
        return len(left)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))


def _nearest(latest_first: Sequence[PromptParts], parts: PromptParts) -> PromptParts | None:
    """The prompt with most parts of this one, wherever they are; of equal ones the last."""
    for earlier in latest_first:
        same_head = earlier.tools == parts.tools and earlier.system == parts.system
        if same_head and parts.messages and earlier.messages == parts.messages[: len(earlier.messages)]:
            return earlier
    own = {*parts.tools, *parts.system, *parts.messages}
    return max(
        latest_first[:_SEARCHED_PROMPTS],
        key=lambda earlier: len(own.intersection(chain(earlier.tools, earlier.system, earlier.messages))),
        default=None,
    )


def _difference(
    earlier: PromptParts, parts: PromptParts, lines: Sequence[str], messages: Sequence[Message]
) -> Difference | None:
    if earlier.tools != parts.tools:
        return _tools(earlier.tools, parts.tools)
    at, sign = _changed_line(earlier.system, parts.system, lines)
    if not parts.messages:
        # Of a text, the last line may go on.
        goes_on = at >= len(earlier.system) - 1 and len(lines) >= len(earlier.system)
        return None if goes_on else Difference("text", at + 1, sign=sign)
    if earlier.system != parts.system:
        return Difference("system", at + 1, sign=sign)
    at = _same(earlier.messages, parts.messages)
    if at == len(earlier.messages):
        return None
    gone = len(earlier.messages) - at
    if at == len(messages):
        return Difference("history_cut", at + 1, count=gone)
    rest = parts.messages[at]
    if rest in earlier.messages[at + 1 :]:
        return Difference("history_cut", at + 1, count=earlier.messages.index(rest, at + 1) - at)
    message, before, now = messages[at], earlier.lines_of(at), parts.lines_of(at)
    if before == now and not isinstance(message.content, str | None):
        return Difference("picture", at + 1, role=message.role)
    if message.role not in _SIGNED_ROLES:
        return Difference("history_edited", at + 1, role=message.role)
    _, sign = _changed_line(before, now, _text(message).split("\n", len(now) - 1))
    return Difference("history_edited", at + 1, sign=sign, role=message.role)


def _tools(earlier: tuple[int, ...], now: tuple[int, ...]) -> Difference:
    at = _same(earlier, now) + 1
    if sorted(earlier) == sorted(now):
        return Difference("tools_order", at)
    added, removed = len(set(now) - set(earlier)), len(set(earlier) - set(now))
    if len(now) == len(earlier) and added:
        return Difference("tool_changed", at, count=added)
    if len(now) > len(earlier):
        return Difference("tool_added", at, count=added)
    return Difference("tool_removed", at, count=removed)


def _changed_line(earlier: array[int], now: array[int], lines: Sequence[str]) -> tuple[int, Sign]:
    """The index of the first line that differs, and its sign. lines: the texts of `now`.

    A line that only moved up, because one before it is gone, has no sign: it did not change.
    """
    at = _same(earlier, now)
    if at == len(lines) or now[at] in earlier[at:]:
        return at, ""
    for sign, pattern in _SIGNS:
        if re.search(pattern, lines[at][:_SEARCHED]):
            return at, sign
    return at, ""
