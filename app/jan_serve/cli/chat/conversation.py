"""Messages and parameters of a chat, the next request, and the saved file. Does no I/O."""

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
    """messages: user and assistant in turn, without the system message.

    keep_alive: how long the model stays loaded after an answer, in the syntax of the API; None means as configured.
    """

    model: str
    system: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict[str, Any])
    answer_format: AnswerFormat | None = None
    messages: list[Message] = field(default_factory=list[Message])
    keep_alive: str | None = None

    def request(self, prompt: str) -> dict[str, Any]:
        """The body of the chat request for `prompt`."""
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
        self.messages += [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]

    def undo(self) -> str | None:
        """Remove the last question and its answer. Returns the question; None if there is none."""
        if not self.messages:
            return None
        question = self.messages[-2]["content"]
        del self.messages[-2:]
        return question

    def clear(self) -> None:
        """Remove all messages; the system message and the parameters stay."""
        self.messages.clear()

    def to_json(self) -> str:
        """The content of a saved chat. Excludes the answer format."""
        content = {
            "jan_serve_chat": _VERSION,
            "model": self.model,
            "system": self.system,
            "parameters": self.parameters,
            "messages": self.messages,
        }
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"

    def restore(self, text: str) -> None:
        """Replace everything but the model by a saved chat. Raises CommandError and then changes nothing."""
        try:
            parsed = json.loads(text)
            content = cast(dict[str, Any], parsed) if isinstance(parsed, dict) else {}
        except (ValueError, RecursionError):
            content = {}
        messages, parameters, system = (content.get(name) for name in ("messages", "parameters", "system"))
        if (
            content.get("jan_serve_chat") != _VERSION
            or not isinstance(parameters, dict)
            or not (system is None or isinstance(system, str))
            or not _alternate(messages)
        ):
            raise CommandError("The file is not a saved chat.", "`/save FILE` writes one.", WRONG_USE)
        self.system = system
        self.parameters = cast(dict[str, Any], parameters)
        self.messages = [{"role": m["role"], "content": m["content"]} for m in cast(list[Message], messages)]


def _alternate(messages: object) -> bool:
    """Whether these are pairs of question and answer."""
    if not isinstance(messages, list):
        return False
    items = cast(list[Any], messages)
    return len(items) % 2 == 0 and all(
        isinstance(item, dict)
        and cast(dict[str, Any], item).get("role") == _ROLES[number % 2]
        and isinstance(cast(dict[str, Any], item).get("content"), str)
        for number, item in enumerate(items)
    )
