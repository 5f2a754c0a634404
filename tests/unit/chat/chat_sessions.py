"""Sessions of an agent over a chat template: how much of a turn's prompt and answer the next prompt begins with."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import Enum
from itertools import count, takewhile
from typing import Any, Final, NamedTuple

import msgspec

from jan_serve.chat.call_form import in_form
from jan_serve.chat.call_layout import CallIds, ids_in
from jan_serve.chat.chat_format import StreamParser
from jan_serve.chat.detect import detect_format
from jan_serve.chat.template import rendered_chat
from jan_serve.chat.template_traits import traits_of
from jan_serve.core.events import ReasoningDelta, TextDelta, ToolCallDelta
from jan_serve.core.messages import FunctionCall, Message, Tool, ToolCall
from jan_serve.core.request import ChatPrompt, RenderRequest

TOOLS: Final = (
    Tool(
        name="read",
        description="Reads.",
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "A path."},
                "lines": {"type": "array", "items": {"type": "integer"}, "description": "Numbers."},
                "deep": {"type": ["boolean", "null"], "description": "Whether."},
            },
        },
    ),
    Tool(name="now", description="The time.", parameters={"type": "object", "properties": {}}),
)

Step = str | tuple[str | None, list[tuple[str, dict[str, Any]]]]
"""A question, or a turn: its text and its calls."""

STEPS: Final[tuple[Step, ...]] = (
    "QUESTION-1",
    ("TEXT-1", [("read", {"path": "PATH-1", "lines": [1, 2]}), ("now", {})]),
    (None, [("read", {"path": 'PATH-2 "q"\n line', "deep": True}), ("read", {"path": ""})]),
    (None, [("read", {"path": "PATH-3\n"})]),
    ("ANSWER-4", []),
    "QUESTION-4",
    ("ANSWER-5", []),
    "QUESTION-5",
    (None, [("now", {})]),
    ("ANSWER-7", []),
    "QUESTION-7",
)


_LAST: Final = re.compile(r"(QUESTION|OUTCOME)[\w-]*")
"""What a prompt's last message is found by."""


class Fate(Enum):
    """What the next prompt makes of a turn."""

    KEPT = "kept"
    THOUGHT = "a thought is left out"
    HEADER = "the turn begins otherwise than the prompt ended"
    CHANGED = "something else changes"


class Turn(NamedTuple):
    """A turn as the template writes it after its prompt, and what the next prompt makes of both.

    cut: characters of the prompt with which the next one begins.
    """

    prompt: str
    answer: str
    fate: Fate
    cut: int
    next_prompt: str


def play(source: str) -> list[Turn]:
    """The turns of a session. The model writes each as the template shows it; the server reads it and shows it
    again."""
    session = _Session(source)
    history = [Message(role="system", content="SYSTEM")]
    written: list[tuple[str, str, str, bool]] = []
    for number, step in enumerate(STEPS):
        if isinstance(step, str):
            history.append(Message(role="user", content=step))
            continue
        prompt = session.rendered(history)
        wanted = session.turn(f"THOUGHT-{number}", step)
        answer, same_start = session.answer(prompt, history, wanted)
        read = session.read(prompt, answer, history)
        written.append((prompt, answer, wanted.reasoning_content or "", same_start))
        history += [read, *session.results(read)]
    prompts = [prompt for prompt, *_ in written[1:]] + [session.rendered(history)]
    return [
        Turn(prompt, answer, _fate(prompt, answer, thought, same, after), _common(prompt, after), after)
        for (prompt, answer, thought, same), after in zip(written, prompts, strict=True)
    ]


def _fate(prompt: str, answer: str, thought: str, same_start: bool, after: str) -> Fate:
    if same_start and thought in answer and after.startswith(prompt + answer):
        return Fate.KEPT
    thoughts = {thought, *re.findall(r"THOUGHT-\d+", prompt)} - {""}
    if any(each not in after for each in thoughts):
        return Fate.THOUGHT
    return Fate.CHANGED if same_start else Fate.HEADER


def _common(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


class _Session:
    def __init__(self, source: str) -> None:
        self._source = source
        self._base = detect_format(source)
        self._numbers = count()
        self._format = self._base
        question = [Message(role="user", content="QUESTION")]
        prompt = self.rendered(question)
        self._thinks = True
        tried, _ = self.answer(prompt, question, self.turn("THOUGHT-0", (None, [("now", {})])))
        opens = self._format.prompt_opens_thought(prompt)
        self._thinks = self._format.thought is not None and (opens or "THOUGHT-0" in tried)

    def rendered(self, messages: Sequence[Message], *, ask: bool = True) -> str:
        chat = rendered_chat(
            RenderRequest(
                prompt=ChatPrompt(
                    messages=tuple(messages),
                    tools=TOOLS,
                    opens_answer=ask,
                    continues_answer=False,
                    template_kwargs={"enable_thinking": True},
                ),
                template=self._source,
                bos_token="<s>",
                eos_token="</s>",
                now=datetime(2026, 1, 2, tzinfo=UTC),
            )
        )
        self._format = in_form(self._base, chat.form)
        return chat.text

    def turn(self, thought: str, step: tuple[str | None, list[tuple[str, dict[str, Any]]]]) -> Message:
        """As far as the template writes it: one call where it has one in a turn."""
        text, calls = step
        layout, traits = self._format.calls, traits_of(self._source)
        several = layout.parallel and (traits.parallel_calls or not traits.calls)
        return Message(
            role="assistant",
            content=None if calls and layout.at_start else text,
            reasoning_content=thought if self._thinks else None,
            tool_calls=tuple(
                ToolCall(f"callid{next(self._numbers):03}", FunctionCall(name, json.dumps(arguments)))
                for name, arguments in (calls if several else calls[:1])
            ),
        )

    def results(self, turn: Message) -> list[Message]:
        return [
            Message(role="tool", content=f"OUTCOME-{call.id}", tool_call_id=call.id, name=call.function.name)
            for call in turn.tool_calls
        ]

    def answer(self, prompt: str, history: Sequence[Message], turn: Message) -> tuple[str, bool]:
        """What the template writes of the turn after the prompt, and whether it leaves all of the prompt before it."""
        results = self.results(turn)
        text = self.rendered([*history, turn, *results], ask=False)
        start = _common(prompt, text)
        asked = [match.end() for match in _LAST.finditer(prompt)][-1]
        shown = text.rfind(prompt[asked - 10 :])
        if start < asked and shown >= 0:  # the turn changes what is before it
            start = shown + len(prompt) - asked + 10
            prompt = text[:start]
        if start < len(prompt):
            # Where the two part in the middle of a tag, the tag belongs to the answer.
            start = len(re.sub(r"<[^<>]*$", "", prompt[:start]))
        if turn.tool_calls:
            layout = self._format.calls
            last = layout.call[-1]
            ending = ((last if isinstance(last, str) else "}") + layout.closing).rstrip()
            end = text.rfind(ending, start, text.find(f"OUTCOME-{turn.tool_calls[0].id}"))
        else:
            ending = str(turn.content)
            end = text.rfind(ending, start)
        return text[start : end + len(ending)], start == len(prompt)

    def read(self, prompt: str, answer: str, history: Sequence[Message]) -> Message:
        """The answer as the server reads it."""
        ids = CallIds(self._format.id_style, ids_in(history), lambda: f"callnum{next(self._numbers):03}"[-9:])
        parser = StreamParser(
            self._format, ids, tools=TOOLS, starts_in_thought=self._format.prompt_opens_thought(prompt)
        )
        deltas = [*parser.feed(answer), *parser.finish()]
        calls: list[ToolCall] = []
        for delta in deltas:
            if isinstance(delta, ToolCallDelta):
                if delta.call_index == len(calls):
                    calls.append(ToolCall(delta.id or "", FunctionCall(delta.name or "", "")))
                last = calls[-1].function
                last = msgspec.structs.replace(last, arguments=last.arguments + delta.arguments)
                calls[-1] = msgspec.structs.replace(calls[-1], function=last)
        text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
        thought = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
        return Message(
            role="assistant",
            content=text or None,
            reasoning_content=thought or None,
            tool_calls=tuple(calls),
        )
