"""Histories as clients send them, drawn at random: orders of roles that OpenAI's or Anthropic's API takes, and more."""

from __future__ import annotations

import itertools
import json
from typing import Any

import msgspec
from hypothesis import strategies as st

from jan_serve.core.messages import FunctionCall, Message, ToolCall

IDS = (
    "{number:09}",
    "call_{in_turn}",
    "toolu_01{number:022}",
    "functions.read:{number}",
    "same",
)
"""Forms of ids: by number in the history, or in its turn."""


class History(msgspec.Struct):
    """Messages, and what must be found in the prompt. Each text is one word, which no other text holds.

    answers: for each turn with calls, the words of its calls, each with that of its result. unknown: the number of such
    a turn, and the word of a result that follows it and names no call.
    """

    messages: list[Message] = msgspec.field(default_factory=list[Message])
    answers: list[list[tuple[str, str]]] = msgspec.field(default_factory=list[list[tuple[str, str]]])
    unknown: list[tuple[int, str]] = msgspec.field(default_factory=list[tuple[int, str]])

    @property
    def words(self) -> list[str]:
        """All texts and arguments."""
        said = [str(message.content) for message in self.messages if message.content]
        return said + [word for turn in self.answers for word, _ in turn]


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Up to eight steps: messages of one role, and turns with calls and their results."""
    history = History()
    words = (f"word{number}x" for number in itertools.count(100))
    numbers = itertools.count()
    ids = draw(st.sampled_from(IDS))
    steps = draw(
        st.lists(
            st.sampled_from(["user", "user", "assistant", "system", "calls", "calls"]), min_size=1, max_size=8
        )
    )
    for step in steps:
        if step == "calls":
            _call(draw, history, words, numbers, ids)
            continue
        empty = step == "assistant" and draw(st.integers(0, 3)) == 0
        history.messages.append(Message(role=step, content="" if empty else next(words)))
    return history


def _call(draw: st.DrawFn, history: History, words: Any, numbers: Any, ids: str) -> None:
    """Add a turn with calls, with text, a thought or neither, and results in any order, others' messages between."""
    count = draw(st.integers(1, 3))
    arguments = [next(words) for _ in range(count)]
    calls = tuple(
        ToolCall(
            ids.format(number=next(numbers), in_turn=index),
            FunctionCall("read", json.dumps({"path": word})),
        )
        for index, word in enumerate(arguments)
    )
    history.messages.append(
        Message(
            role="assistant",
            content=draw(st.sampled_from([None, "", "text"])) and next(words),
            reasoning_content=draw(st.sampled_from([None, "Hm."])),
            tool_calls=calls,
        )
    )
    results = [Message(role="tool", content=next(words), tool_call_id=call.id) for call in calls]
    history.answers.append(
        [(word, str(result.content)) for word, result in zip(arguments, results, strict=True)]
    )
    sent = results if ids == "same" else draw(st.permutations(results))
    between = draw(st.sampled_from([None, None, "user", "system"]))
    for index, result in enumerate(sent):
        if between is not None and index:
            history.messages.append(Message(role=between, content=next(words)))
        history.messages.append(result)
    if draw(st.integers(0, 4)) == 0:
        word = next(words)
        history.messages.append(Message(role="tool", content=word, tool_call_id="unknown"))
        history.unknown.append((len(history.answers) - 1, word))
