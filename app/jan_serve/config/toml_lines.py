"""Line numbers of the keys of valid TOML, for messages: tomllib keeps none."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from typing import Any, cast

KeyPath = tuple[str | int, ...]
"""Keys from the outermost to the innermost; numbers are array indices."""


class TomlLines:
    """The line (from 1) of each key of a text that tomllib accepts."""

    def __init__(self, text: str) -> None:
        self._lines: dict[KeyPath, int] = {}
        table: KeyPath = ()
        tables_of_array: dict[KeyPath, int] = {}
        for number, statement in _statements(text):
            values = tomllib.loads(statement)
            if not statement.lstrip().startswith("["):
                self._record(table, values, number)
                continue
            table = _header_path(values, tables_of_array)
            for end in range(1, len(table) + 1):
                self._lines.setdefault(table[:end], number)

    def line_of(self, path: KeyPath) -> int:
        """The line of the key, else of the closest enclosing key."""
        for end in range(len(path), 0, -1):
            if path[:end] in self._lines:
                return self._lines[path[:end]]
        return 1

    def _record(self, at: KeyPath, value: Any, number: int) -> None:
        if at:
            self._lines.setdefault(at, number)
        inner: Iterable[tuple[str | int, Any]] = ()
        if isinstance(value, dict):
            inner = cast(dict[str, Any], value).items()
        elif isinstance(value, list):
            inner = enumerate(cast(list[Any], value))
        for key, part in inner:
            self._record((*at, key), part, number)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Each header or assignment with its first line; a statement may span lines."""
    first, pending = 0, ""
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if not pending:
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            first = number
        pending += line
        try:
            tomllib.loads(pending)
        except tomllib.TOMLDecodeError:
            continue  # the value continues on the next line
        yield first, pending
        pending = ""


def _header_path(values: dict[str, Any], tables_of_array: dict[KeyPath, int]) -> KeyPath:
    """The table that `[a.b]` or `[[a.b]]` opens. A prefix that names an array means its last table."""
    path: KeyPath = ()
    value: Any = values
    while isinstance(value, dict) and value:
        key, value = next(iter(cast(dict[str, Any], value).items()))
        path += (key,)
        if isinstance(value, list):
            tables_of_array[path] = tables_of_array.get(path, -1) + 1
        if path in tables_of_array:
            path += (tables_of_array[path],)
    return path
