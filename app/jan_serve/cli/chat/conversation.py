"""What was said so far and what is asked of the next answer. Knows no terminal and no server."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final, cast

from jan_serve.cli.chat.answer_format import AnswerFormat
from jan_serve.cli.errors import WRONG_USE, CommandError

Message = dict[str, str]

_VERSION: Final = 1
_ROLES: Final = ("user", "assistant")


@dataclass(slots=True)
class Conversation:
    """One chat. messages: of the user and the model in turn, the system message apart.

    keep_alive: how long the model stays in memory after an answer, in the server's words; None is as configured.
    """

    model: str
    system: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict[str, Any])
    answer_format: AnswerFormat | None = None
    messages: list[Message] = field(default_factory=list[Message])
    keep_alive: str | None = None

    def request(self, prompt: str) -> dict[str, Any]:
        """The body of the chat request in which the user says `prompt`. Changes nothing."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return {
            "model": self.model,
            "messages": [*system, *self.messages, {"role": "user", "content": prompt}],
            "stream": True,
            "stream_options": {"include_usage": True},
            **(self.answer_format.fields if self.answer_format is not None else {}),
            **self.parameters,
            **({"keep_alive": self.keep_alive} if self.keep_alive is not None else {}),
        }

    def add(self, prompt: str, answer: str) -> None:
        """What was asked, and what came."""
        self.messages += [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]

    def take_back(self) -> str | None:
        """Forget the last question and its answer; the value is the question, None where there is none."""
        if not self.messages:
            return None
        question = self.messages[-2]["content"]
        del self.messages[-2:]
        return question

    def clear(self) -> None:
        """Forget what was said; the system message and the parameters stay."""
        self.messages.clear()

    def to_json(self) -> str:
        """The chat as a file keeps it. The format of answers is not part of it."""
        content = {
            "jan_serve_chat": _VERSION,
            "model": self.model,
            "system": self.system,
            "parameters": self.parameters,
            "messages": self.messages,
        }
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"

    def restore(self, text: str) -> None:
        """Go on with the chat of a file; the model stays. Raises CommandError, and changes nothing then."""
        try:
            found = json.loads(text)
            content = cast(dict[str, Any], found) if isinstance(found, dict) else {}
        except (ValueError, RecursionError):
            content = {}
        messages, parameters, system = (content.get(name) for name in ("messages", "parameters", "system"))
        if (
            content.get("jan_serve_chat") != _VERSION
            or not isinstance(parameters, dict)
            or not (system is None or isinstance(system, str))
            or not _in_turn(messages)
        ):
            raise CommandError("The file is not a saved chat.", "`/save FILE` writes one.", WRONG_USE)
        self.system = system
        self.parameters = cast(dict[str, Any], parameters)
        self.messages = [{"role": m["role"], "content": m["content"]} for m in cast(list[Message], messages)]


def _in_turn(messages: object) -> bool:
    """Whether these are questions and answers in turn."""
    if not isinstance(messages, list):
        return False
    items = cast(list[Any], messages)
    return len(items) % 2 == 0 and all(
        isinstance(item, dict)
        and cast(dict[str, Any], item).get("role") == _ROLES[number % 2]
        and isinstance(cast(dict[str, Any], item).get("content"), str)
        for number, item in enumerate(items)
    )
