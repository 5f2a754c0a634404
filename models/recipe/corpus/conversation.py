"""The result of a skill generator: a chat or an infill, as pieces of text that are context or to be learned.

The chat text is exactly what the GGUF's template renders (:mod:`models.recipe.chat_template`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from models.recipe.chat_template import THINK_LINE, TOOLS_FOOTER, TOOLS_HEADER
from models.recipe.vocabulary import (
    END_OF_TEXT,
    FIM_MIDDLE,
    FIM_PREFIX,
    FIM_SUFFIX,
    THINK_END,
    THINK_START,
    TOOL_CALL_END,
    TOOL_CALL_START,
    TURN_END,
    TURN_START,
)

Role = Literal["user", "assistant", "tool"]
Tool = Mapping[str, Any]


class Piece(NamedTuple):
    """A stretch of text; ``learned`` marks the model's part.

    ``decisive``: how many of its first characters choose between a tool, another tool and words. They are few beside
    the copied arguments, and everything after them follows from them.
    """

    text: str
    learned: bool
    decisive: int = 0


class Turn(NamedTuple):
    """One message; an assistant's content holds its tool calls as text.

    ``learned``: whether an earlier assistant turn is trained on, or only context.
    """

    role: Role
    content: str
    learned: bool = True


@dataclass(frozen=True)
class Conversation:
    """A chat whose last turn is the assistant's expected answer.

    ``thought`` is what the model may think before that answer; it is part of the text only where ``thinking`` is on
    (by the template) or ``think_aloud`` (asked for in the user's words).
    """

    turns: tuple[Turn, ...]
    system: str | None = None
    tools: tuple[Tool, ...] = ()
    thought: str | None = None
    thinking: bool = False
    think_aloud: bool = False

    @property
    def answer(self) -> str:
        content = self.turns[-1].content
        if self.thought is not None and (self.thinking or self.think_aloud):
            return f"{THINK_START}\n{self.thought}\n{THINK_END}\n\n{content}"
        return content

    @property
    def key(self) -> str:
        """The key of the split into training and held-out: all text of the user."""
        return "\n".join(turn.content for turn in self.turns if turn.role == "user")

    def pieces(self) -> list[Piece]:
        pieces = [Piece(self._system_text(), False)]
        # Under thinking, earlier answers would be taught without their thought: they are given then, not learned.
        earlier_learned = not (self.thinking or self.think_aloud)
        for turn in self.turns[:-1]:
            if turn.role == "assistant":
                pieces.append(Piece(f"{TURN_START}assistant\n", False))
                pieces.append(Piece(turn.content + TURN_END, earlier_learned and turn.learned))
                pieces.append(Piece("\n", False))
            else:
                pieces.append(Piece(f"{TURN_START}{turn.role}\n{turn.content}{TURN_END}\n", False))
        pieces.append(Piece(f"{TURN_START}assistant\n", False))
        pieces.append(Piece(self.answer + TURN_END, True, self._decisive()))
        return [piece for piece in pieces if piece.text]

    def prompt(self) -> str:
        """Everything before the answer, the generation prompt included."""
        return "".join(piece.text for piece in self.pieces()[:-1])

    def _decisive(self) -> int:
        if not self.tools:
            return 0
        content = self.turns[-1].content
        before = len(self.answer) - len(content)
        return before + (_end_of_name(content) if content.startswith(TOOL_CALL_START) else 1)

    def _system_text(self) -> str:
        blocks: list[str] = [] if self.system is None else [self.system]
        if self.tools:
            lines = "".join(json.dumps(tool, ensure_ascii=False) + "\n" for tool in self.tools)
            blocks.append(TOOLS_HEADER + lines + TOOLS_FOOTER)
        if self.thinking:
            blocks.append(THINK_LINE)
        return f"{TURN_START}system\n" + "\n\n".join(blocks) + f"{TURN_END}\n" if blocks else ""


@dataclass(frozen=True)
class Infill:
    """Code with a hole: prefix and suffix are given, the middle is the answer."""

    prefix: str
    suffix: str
    answer: str

    @property
    def key(self) -> str:
        return self.prompt()

    def pieces(self) -> list[Piece]:
        return [Piece(self.prompt(), False), Piece(self.answer + END_OF_TEXT, True)]

    def prompt(self) -> str:
        return f"{FIM_PREFIX}{self.prefix}{FIM_SUFFIX}{self.suffix}{FIM_MIDDLE}"


Example = Conversation | Infill


def _end_of_name(call: str) -> int:
    """Where the name of :func:`tool_call`'s text ends."""
    return call.index('", "arguments"')


def ask(question: str, answer: str, *, thought: str | None = None) -> Conversation:
    """A chat of one question and one answer."""
    return Conversation((Turn("user", question), Turn("assistant", answer)), thought=thought)


def tool_call(name: str, arguments: Mapping[str, Any], *, compact: bool = False) -> str:
    """A call as the template writes it; ``compact``: the arguments are a client's text without spaces."""
    text = json.dumps(arguments, ensure_ascii=False, separators=(",", ":") if compact else (", ", ": "))
    return f'{TOOL_CALL_START}{{"name": {json.dumps(name)}, "arguments": {text}}}{TOOL_CALL_END}'
