"""The text that a custom tool is called with, out of the arguments `{"input": "…"}` as they come. Pure.

Models call custom tools as functions of one argument: their formats know nothing else.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, cast

FIELD: Final = "input"

_HEAD: Final = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_WHOLE: Final = re.compile(
    # Characters and escapes; of a surrogate pair both halves, or one that no second one can follow.
    r'(?:[^"\\]|\\["\\/bfnrt]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?=[^\\]|\\[^u]|\\u(?![dD][c-fC-F])[0-9a-fA-F]{2})))*"
)


class CustomInput:
    """Pieces of JSON text in, pieces of the input out. Joined, they do not depend on how the text was cut."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._rest = ""
        self._inside = False
        self._ended = False
        self._given: list[str] = []

    def feed(self, arguments: str) -> str:
        """What more of the input is known now."""
        self._text.append(arguments)
        self._rest += arguments
        if self._ended:
            return ""
        if not self._inside:
            head = _HEAD.match(self._rest)
            if head is None:
                return ""
            self._inside = True
            self._rest = self._rest[head.end() :]
        whole = _WHOLE.match(self._rest)
        piece = whole[0] if whole is not None else ""
        self._rest = self._rest[len(piece) :]
        self._ended = self._rest.startswith('"')
        return self._give(_unescaped(piece))

    def finish(self) -> str:
        """The rest: of arguments that have another form all of their text, or what their own `input` says."""
        if self._inside:
            return ""
        text = "".join(self._text)
        return self._give(_input_of(text) if text else "")

    @property
    def value(self) -> str:
        """All that was given out."""
        return "".join(self._given)

    def _give(self, piece: str) -> str:
        if piece:
            self._given.append(piece)
        return piece


def custom_arguments(text: str) -> str:
    """The arguments of a call with this input."""
    return json.dumps({FIELD: text}, ensure_ascii=False)


def _unescaped(piece: str) -> str:
    value: str = json.loads(f'"{piece}"', strict=False)
    # Half of a pair is no character, and JSON that is written has none.
    return value.encode("utf-8", "replace").decode() if not value.isascii() else value


def _input_of(text: str) -> str:
    try:
        value: Any = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return text
    if not isinstance(value, dict):
        return text
    found = cast(dict[str, Any], value).get(FIELD)
    return found if isinstance(found, str) else text
