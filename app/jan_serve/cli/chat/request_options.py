"""What a chat request has beside its messages: the parameters of `/set` and `--set`, a format, and files.
Only the names of parameters and the kinds of their values are checked here: the server checks the values."""

from __future__ import annotations

import base64
import difflib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

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
