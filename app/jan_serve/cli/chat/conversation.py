"""A chat: its messages, the parameters, format and files of its requests, and its saved file."""

from __future__ import annotations

import base64
import difflib
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from jan_serve.cli.errors import WrongUse
from jan_serve.cli.input import read_bytes, read_file
from jan_serve.core.nesting import is_deeper
from jan_serve.errors import InvalidImage
from jan_serve.image_files import checked_header
from jan_serve.store.files import user_path

MAX_DOCUMENT_BYTES: Final = 32 << 20
"""The server takes no larger file."""
_PDF: Final = b"%PDF-"

PARAMETERS: Final = {
    "temperature": "randomness; 0 always picks the most likely token",
    "top_p": "sample from the likeliest tokens up to this total, 0 to 1",
    "top_k": "sample from the k most likely tokens; 0 is off",
    "min_p": "minimum probability relative to the likeliest token, 0 to 1",
    "repeat_penalty": "penalty for repeated tokens; 1 is off",
    "presence_penalty": "penalty for tokens that already occur, -2 to 2",
    "frequency_penalty": "penalty that grows with the frequency of a token, -2 to 2",
    "mirostat_mode": "Mirostat 1 or 2; 0 is off",
    "mirostat_tau": "target entropy of Mirostat",
    "mirostat_eta": "learning rate of Mirostat",
    "seed": "the same seed gives the same answer; -1 is random",
    "stop": 'texts that end the answer, as ["one", "two"]',
    "min_tokens": "minimum number of tokens in the answer",
    "max_tokens": "maximum number of tokens; 0 is until the context is full",
    "enable_thinking": "whether a reasoning model thinks: true or false",
    "reasoning_budget": "maximum number of reasoning tokens; -1 is no limit",
    "reasoning_effort": "none, minimal, low, medium, high or xhigh",
}

_OTHER_KINDS: Final = frozenset({"stop", "enable_thinking", "reasoning_effort"})
"""Options whose value is no number."""


def parameter(name: str, text: str) -> tuple[str, Any]:
    """Parse a parameter: a value that is not JSON is a string. Raises CommandError."""
    known = name.strip().replace("-", "_").lower()
    if known not in PARAMETERS:
        near = difflib.get_close_matches(known, list(PARAMETERS), n=1)
        hint = f"Did you mean {near[0]}?" if near else f"Parameters: {', '.join(PARAMETERS)}."
        raise WrongUse(f"There is no parameter {name!r}.", hint)
    text = text.strip()
    if not text:
        raise WrongUse(f"{known} needs a value: {PARAMETERS[known]}.")
    try:
        value = json.loads(text, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        words = {"on": True, "off": False, "yes": True, "no": False}
        value = words.get(text.lower(), text)
    if known not in _OTHER_KINDS and (isinstance(value, bool) or not isinstance(value, int | float | None)):
        raise WrongUse(f"{known} takes a number, not {text!r}: {PARAMETERS[known]}.")
    return known, value


def assignments(pairs: list[str]) -> dict[str, Any]:
    """Parse pairs of the form `NAME=VALUE`. Raises CommandError."""
    if wrong := next((pair for pair in pairs if "=" not in pair), None):
        raise WrongUse(f"--set takes NAME=VALUE, but {wrong!r} has no `=`.")
    return dict(parameter(*pair.split("=", 1)) for pair in pairs)


def _reject_constant(word: str) -> Any:
    """NaN and Infinity are not JSON."""
    raise ValueError(word)


_MAX_BYTES: Final = 1 << 20
_MAX_DEPTH: Final = 200


class AnswerFormat(msgspec.Struct, frozen=True):
    """fields: added to the request. name: as the user typed it."""

    name: str
    fields: Mapping[str, Any]


def read_format(name: str) -> AnswerFormat:
    """name: `json`, a file with a JSON Schema or GBNF, or a grammar of the server. Raises CommandError."""
    if name == "json":
        return AnswerFormat(name, {"response_format": {"type": "json_object"}})
    path = user_path(name)
    if not os.path.isfile(path):
        if path.suffix or len(path.parts) > 1:
            raise WrongUse(
                f"There is no file {name}.", "A format is `json`, a file, or the name of a grammar."
            )
        return AnswerFormat(name, {"grammar": name})
    text = read_file(path, _MAX_BYTES)
    if "::=" in text:
        return AnswerFormat(name, {"grammar": text})
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WrongUse(f"{name} is neither JSON nor GBNF: {error}") from None
    if is_deeper(schema, _MAX_DEPTH):
        raise WrongUse(f"{name} nests deeper than {_MAX_DEPTH} levels.")
    wrapped = {"type": "json_schema", "json_schema": {"name": path.stem, "schema": schema}}
    return AnswerFormat(name, {"response_format": wrapped})


def file_part(path: Path) -> dict[str, Any]:
    """The file as a part of a message: an image, a PDF, or text in UTF-8. Raises CommandError."""
    data = read_bytes(user_path(path), MAX_DOCUMENT_BYTES)
    encoded = base64.b64encode(data).decode()
    if data.startswith(_PDF) or _is_text(data):
        kind = "application/pdf" if data.startswith(_PDF) else "text/plain"
        return {"type": "file", "file": {"filename": path.name, "file_data": f"data:{kind};base64,{encoded}"}}
    try:
        header = checked_header(data)
    except InvalidImage as error:
        raise WrongUse(f"{path} is no PDF, no text in UTF-8, and: {error.message}") from None
    return {"type": "image_url", "image_url": {"url": f"data:image/{header.format.lower()};base64,{encoded}"}}


def _is_text(data: bytes) -> bool:
    try:
        return bool(data.strip()) and "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


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
