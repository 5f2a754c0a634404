"""The arguments of an earlier call as an object, whatever a model or client wrote."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any, Final, NamedTuple, cast

from jan_serve.chat.literals import literal_start
from jan_serve.text.valid_text import valid_text

MAX_DEPTH: Final = 100
"""Templates, and writers of calls, descend into arguments: deeper ones would end the conversation."""

_FENCE: Final = re.compile(r"```\w*\s*")
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[{}\[\],]|[^{}\[\],"]+', re.DOTALL)
_WORD_AT_END: Final = re.compile(r"\b(true|false|null)$")
_CLOSERS: Final = {"{": "}", "[": "]"}


class ReadArguments(NamedTuple):
    """The members that a text of arguments holds. whole: the text says nothing else."""

    values: dict[str, Any]
    whole: bool


def object_arguments(text: str) -> dict[str, Any]:
    """The arguments of a call as an object, read by `read_arguments`."""
    return read_arguments(text).values


def read_arguments(text: str) -> ReadArguments:
    """The object that `text` holds, or the members at its beginning that are whole; empty if it holds none.

    A call that a limit cut short, or that has a mistake, must not end its conversation: each later request holds it.
    Python's notation and keys without quotes are read too. Halves of surrogate pairs become U+FFFD.
    """
    text = text.strip()
    fence = _FENCE.match(text)
    text = text[fence.end() :].removesuffix("```").rstrip() if fence is not None else text
    if not text.startswith("{") or _depth(text) > MAX_DEPTH:
        return ReadArguments({}, text in ("", "null"))
    try:
        # Names of numbers that JSON does not have are words, as others without quotes.
        value, whole = json.loads(text, strict=False, parse_constant=str), True
    except json.JSONDecodeError:
        read = literal_start(f"{text} " if _WORD_AT_END.search(text) else text)
        value, whole = _beginning(read.json), read.whole
    except ValueError:  # a number of thousands of digits
        return ReadArguments({}, False)
    return ReadArguments(_encodable(cast(dict[str, Any], value)), whole)


def arguments_text(text: str, values: dict[str, Any]) -> str:
    """JSON of `values`: `text` itself, if it is the JSON that they were read from."""
    try:
        if json.loads(text) == values:
            return text
    except (ValueError, RecursionError):
        pass
    return json.dumps(values, ensure_ascii=False)


def _depth(text: str) -> int:
    """Greatest nesting of arrays and objects."""
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return 0
    marks = (1 if token[0] in _CLOSERS else -1 for token in _TOKEN.finditer(text) if token[0] in "{}[]")
    return max(itertools.accumulate(marks))


def _beginning(text: str) -> dict[str, Any]:
    """The object whose text ends too early, without what is incomplete. `text` has no other mistake."""
    closers: list[str] = []
    end, missing = 0, ""
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in _CLOSERS:
            closers.append(_CLOSERS[mark])
        elif closers and mark == closers[-1]:
            closers.pop()
        elif mark != ",":
            continue
        end, missing = token.start() if mark == "," else token.end(), "".join(reversed(closers))
        if not closers:
            break
    for candidate in (text + missing, text[:end] + missing):
        try:
            return json.loads(candidate, strict=False)
        except ValueError:
            continue
    return {}


def _encodable(value: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(value, ensure_ascii=False)
    valid = valid_text(text)
    return value if valid == text else json.loads(valid)
