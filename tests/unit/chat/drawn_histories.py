"""Histories as clients send them, drawn at random: whatever OpenAI's, Anthropic's or Ollama's API takes, and more."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec
from hypothesis import strategies as st

from jan_serve.core.messages import ContentPart, FunctionCall, Message, TextPart, ToolCall

IDS = (
    "{number:09}",
    "call_{in_turn}",
    "toolu_01{number:022}",
    "functions.read:{number}",
    "x" * 300 + "{number}",
    "same",
    "",
)
"""Forms of ids: by number in the history, or in its turn."""

ARGUMENTS = (
    '{{"path": "{word}"}}',
    '{{"path": "{word}"}}',
    '{{"path": "{word}", "more": {{"list": [1, null, true, {{"a": "b"}}], "none": null}}}}',
    '{{"path": "{word}",}}',
    '{{"path": "{word}", "more": "cut',
    '```json\n{{"path": "{word}"}}\n```',
)
"""As models write them, broken ones too; `word` must be shown of each."""

STEPS = ("user", "user", "assistant", "system", "calls", "calls", "result", "empty", "thought")


class History(msgspec.Struct):
    """Messages, and what must be found in the prompt. Each text is one word, which no other text holds.

    answers: for each turn with calls, the words of its calls, each with that of its result, if it has one. unknown: the
    number of such a turn, and the word of a result that follows it and names no call.
    """

    messages: list[Message] = msgspec.field(default_factory=list[Message])
    words: list[str] = msgspec.field(default_factory=list[str])
    answers: list[list[tuple[str, str]]] = msgspec.field(default_factory=list[list[tuple[str, str]]])
    unknown: list[tuple[int, str]] = msgspec.field(default_factory=list[tuple[int, str]])


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Up to eight steps: messages of one role, without content too, and turns with calls and their results."""
    return _Drawing(draw).history()


class _Drawing:
    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._ids = draw(st.sampled_from(IDS))
        self._numbers = itertools.count()
        self._history = History()
        self._new_words = (f"word{number}x" for number in itertools.count(100))

    def history(self) -> History:
        for step in self._draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=8)):
            match step:
                case "calls":
                    self._call()
                case "result":
                    call_id = self._draw(st.sampled_from(["unknown", None, "call_0"]))
                    self._say("tool", self._content(), call_id)
                case "empty":
                    role = self._draw(st.sampled_from(["user", "assistant", "tool"]))
                    self._say(role, self._draw(st.sampled_from(["", None])))
                case "thought":
                    turn = Message(role="assistant", content=self._draw(st.sampled_from([None, ""])))
                    self._history.messages.append(msgspec.structs.replace(turn, reasoning_content="Hm."))
                case role:
                    self._say(role, self._content())
        return self._history

    def _word(self) -> str:
        word = next(self._new_words)
        self._history.words.append(word)
        return word

    def _content(self) -> str | tuple[ContentPart, ...]:
        word = self._word()
        return word if self._draw(st.integers(0, 3)) else (TextPart(f"{word} "), TextPart(self._word()))

    def _say(
        self, role: str, content: str | tuple[ContentPart, ...] | None, call_id: str | None = None
    ) -> None:
        self._history.messages.append(Message(role=role, content=content, tool_call_id=call_id))

    def _call(self) -> None:
        """A turn with calls, with text, a thought or neither, and results in any order, others' messages between."""
        draw, history = self._draw, self._history
        words = [self._word() for _ in range(draw(st.integers(1, 3)))]
        calls = tuple(self._calls(words))
        text = draw(st.sampled_from([None, "", "text"]))
        history.messages.append(
            Message(
                role="assistant",
                content=self._word() if text == "text" else text,
                reasoning_content=draw(st.sampled_from([None, "Hm."])),
                tool_calls=calls,
            )
        )
        is_ambiguous = self._ids in ("same", "")
        answered = [call for call in calls if is_ambiguous or draw(st.integers(0, 5))]
        results = [Message(role="tool", content=self._word(), tool_call_id=call.id) for call in answered]
        paired = zip(words, calls, strict=True)
        called = [word for word, call in paired if any(call is each for each in answered)]
        history.answers.append(
            [(word, str(result.content)) for word, result in zip(called, results, strict=True)]
        )
        between = draw(st.sampled_from([None, None, "user", "system"]))
        for index, result in enumerate(results if is_ambiguous else draw(st.permutations(results))):
            if between is not None and index:
                self._say(between, self._content())
            history.messages.append(result)
        if not draw(st.integers(0, 4)):
            word = self._word()
            self._say("tool", word, "unknown")
            history.unknown.append((len(history.answers) - 1, word))

    def _calls(self, words: list[str]) -> Iterator[ToolCall]:
        for index, word in enumerate(words):
            name = self._draw(st.sampled_from(["read", "read", "other", "mcp.files/read-it"]))
            arguments = self._draw(st.sampled_from(ARGUMENTS)).format(word=word)
            call_id = self._ids.format(number=next(self._numbers), in_turn=index)
            yield ToolCall(call_id, FunctionCall(name, arguments))
