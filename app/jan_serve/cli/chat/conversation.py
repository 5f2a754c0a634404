"""Messages and parameters of a chat, the next request, and the saved file. Does no I/O."""

from __future__ import annotations

import json
from typing import Any, Final, cast

import msgspec

from jan_serve.cli.chat.request_options import AnswerFormat
from jan_serve.cli.errors import WRONG_USE, CommandError

Message = dict[str, Any]
"""Of one role and its content: a text, or parts in OpenAI's notation."""

_VERSION: Final = 1
_ROLES: Final = ("user", "assistant")


class Conversation(msgspec.Struct):
    """messages: user and assistant in turn, without the system message.

    images: data URLs of images that go with the next question. keep_alive: how long the model stays loaded after an
    answer, in the syntax of the API; None means as configured.
    """

    model: str
    system: str | None = None
    parameters: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    answer_format: AnswerFormat | None = None
    messages: list[Message] = msgspec.field(default_factory=list[Message])
    images: list[str] = msgspec.field(default_factory=list[str])
    keep_alive: str | None = None

    def request(self, prompt: str) -> dict[str, Any]:
        """The body of the chat request for `prompt`."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return {
            "model": self.model,
            "messages": [*system, *self.messages, {"role": "user", "content": self._content(prompt)}],
            "stream": True,
            "stream_options": {"include_usage": True},
            **(self.answer_format.fields if self.answer_format is not None else {}),
            **self.parameters,
            **({"keep_alive": self.keep_alive} if self.keep_alive is not None else {}),
        }

    def add(self, prompt: str, answer: str) -> None:
        """Keep a question, with its images, and its answer."""
        question = {"role": "user", "content": self._content(prompt)}
        self.messages += [question, {"role": "assistant", "content": answer}]
        self.images = []

    def _content(self, prompt: str) -> str | list[dict[str, Any]]:
        if not self.images:
            return prompt
        parts = [{"type": "image_url", "image_url": {"url": url}} for url in self.images]
        return [*parts, {"type": "text", "text": prompt}]

    def undo(self) -> str | None:
        """Remove the last question and its answer. Returns the question; None if there is none.

        Its images go with the next question.
        """
        if not self.messages:
            return None
        content: str | list[dict[str, Any]] = self.messages[-2]["content"]
        del self.messages[-2:]
        if isinstance(content, str):
            return content
        self.images = [part["image_url"]["url"] for part in content[:-1]]
        return content[-1]["text"]

    def clear(self) -> None:
        """Remove all messages and images; the system message and the parameters stay."""
        self.messages.clear()
        self.images.clear()

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
        and _is_content(cast(dict[str, Any], item).get("content"))
        for number, item in enumerate(items)
    )


def _is_content(value: object) -> bool:
    """Whether it is a text, or images and a text."""
    if not isinstance(value, list):
        return isinstance(value, str)
    *images, text = cast(list[object], value) or [None]
    return _is_text(text) and all(_is_image(image) for image in images)


def _is_text(value: object) -> bool:
    match value:
        case {"type": "text", "text": str()}:
            return True
        case _:
            return False


def _is_image(value: object) -> bool:
    match value:
        case {"type": "image_url", "image_url": {"url": str()}}:
            return True
        case _:
            return False
