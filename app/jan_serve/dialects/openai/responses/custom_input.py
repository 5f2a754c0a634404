"""Streams the input of a custom tool out of the arguments `{"input": "…"}`. Pure.

Models call custom tools as functions of one argument, the only form that their formats have.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, cast

from jan_serve.text.valid_text import valid_text

INPUT: Final = "input"

_HEAD: Final = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_WHOLE: Final = re.compile(
    # Characters and escapes: both halves of a surrogate pair, or a half that cannot become a pair.
    r'(?:[^"\\]|\\["\\/bfnrt]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?=[^\\]|\\[^u]|\\u(?![dD][c-fC-F])[0-9a-fA-F]{2})))*"
)


class CustomInput:
    """Streams the input of a custom tool out of its arguments, the same one wherever these were cut."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._rest = ""
        self._inside = False
        self._ended = False

    def feed(self, arguments: str) -> str:
        """The new part of the input."""
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
        return valid_text(json.loads(f'"{piece}"', strict=False))

    def finish(self) -> str:
        """The rest. For arguments of another form: their `input` if it is a text, else all of their text."""
        text = "".join(self._text)
        if self._inside or not text:
            return ""
        try:
            value: Any = json.loads(text, strict=False)
        except (ValueError, RecursionError):
            return text
        found = cast(dict[str, Any], value).get(INPUT) if isinstance(value, dict) else None
        return valid_text(found) if isinstance(found, str) else text


def custom_arguments(text: str) -> str:
    return json.dumps({INPUT: text}, ensure_ascii=False)
