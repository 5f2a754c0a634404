"""Messages and parameters of a chat, the next request, and the saved file. Does no I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from jan_serve.cli.chat.request_options import AnswerFormat
from jan_serve.cli.errors import WrongUse

Message = dict[str, Any]
"""A role and its content: a text, or parts in OpenAI's notation."""

_VERSION: Final = 1


class Conversation(msgspec.Struct):
    """messages: user and assistant in turn, without the system message. Calls of tools and their results, if any, are
    between a question and its answer.
    files: parts of content, images and documents, that go with the next question. keep_alive: how long the model stays
    loaded after an answer, in the syntax of the API; None means as configured."""

    model: str
    system: str | None = None
    parameters: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    answer_format: AnswerFormat | None = None
    messages: list[Message] = msgspec.field(default_factory=list[Message])
    files: list[dict[str, Any]] = msgspec.field(default_factory=list[dict[str, Any]])
    keep_alive: str | None = None

    def request(self, prompt: str, steps: Sequence[Message] = ()) -> dict[str, Any]:
        """The body of the chat request for `prompt`. steps: calls and results that follow it."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return {
            "model": self.model,
            "messages": [*system, *self.messages, {"role": "user", "content": self._content(prompt)}, *steps],
            "stream": True,
            "stream_options": {"include_usage": True},
            **(self.answer_format.fields if self.answer_format is not None else {}),
            **self.parameters,
            **({"keep_alive": self.keep_alive} if self.keep_alive is not None else {}),
        }

    def add(self, prompt: str, answer: str, steps: Sequence[Message] = ()) -> None:
        """Keep a question, with its files, the steps to its answer, and the answer."""
        question = {"role": "user", "content": self._content(prompt)}
        self.messages += [question, *steps, {"role": "assistant", "content": answer}]
        self.files = []

    def _content(self, prompt: str) -> str | list[dict[str, Any]]:
        if not self.files:
            return prompt
        return [*self.files, {"type": "text", "text": prompt}]

    def undo(self) -> str | None:
        """Remove the last question and its answer. Returns the question; None if there is none.

        Its files go with the next question.
        """
        if not self.messages:
            return None
        start = max(at for at, message in enumerate(self.messages) if message["role"] == "user")
        content: str | list[dict[str, Any]] = self.messages[start]["content"]
        del self.messages[start:]
        if isinstance(content, str):
            return content
        self.files = content[:-1]
        return content[-1]["text"]

    def clear(self) -> None:
        """Remove all messages and files; the system message and the parameters stay."""
        self.messages.clear()
        self.files.clear()

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
            saved = msgspec.json.decode(text.encode("utf-8", "surrogatepass"), type=_SavedChat)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            saved = None
        if saved is None or not _TURNS.fullmatch("".join(message.letter() for message in saved.messages)):
            raise WrongUse("The file is not a saved chat.", "`/save FILE` writes one.")
        self.system = saved.system
        self.parameters = saved.parameters
        self.messages = msgspec.to_builtins(saved.messages)


class _Text(msgspec.Struct, tag="text", tag_field="type"):
    text: str


class _ImageUrl(msgspec.Struct):
    url: str


class _Image(msgspec.Struct, tag="image_url", tag_field="type"):
    image_url: _ImageUrl


class _File(msgspec.Struct):
    filename: str
    file_data: str


class _Document(msgspec.Struct, tag="file", tag_field="type"):
    file: _File


class _Question(msgspec.Struct, tag="user", tag_field="role"):
    content: str | list[_Text | _Image | _Document]

    def letter(self) -> str:
        if isinstance(self.content, str):
            return "q"
        *files, text = self.content or [None]
        return "q" if isinstance(text, _Text) and not any(isinstance(each, _Text) for each in files) else "?"


class _Function(msgspec.Struct):
    name: str
    arguments: str


class _Call(msgspec.Struct):
    id: str
    type: Literal["function"]
    function: _Function


class _Answer(msgspec.Struct, tag="assistant", tag_field="role", omit_defaults=True):
    content: str
    tool_calls: list[_Call] | None = None

    def letter(self) -> str:
        return "c" if self.tool_calls else "a"


class _Result(msgspec.Struct, tag="tool", tag_field="role"):
    tool_call_id: str
    content: str | list[_Text | _Image]

    def letter(self) -> str:
        return "r"


class _SavedChat(msgspec.Struct):
    jan_serve_chat: Literal[1]
    system: str | None
    parameters: dict[str, Any]
    messages: list[_Question | _Answer | _Result]


_TURNS: Final = re.compile("(q(cr+)*a)*")
"""A question, calls with their results, and an answer."""
