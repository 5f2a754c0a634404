"""Reads the configuration file, and locates its keys."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from jan_serve.core.nesting import is_deeper
from jan_serve.errors import SettingsError
from jan_serve.store.files import LaterFormat, TooLarge, check_format, raise_if_exhausted, read_limited

VERSION_KEY: Final = "config_version"


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


MAX_BYTES: Final = 1 << 20
_MAX_DEPTH: Final = 50
_AT_LINE: Final = re.compile(r" \(at line (\d+), column \d+\)\Z")


class ConfigFile(msgspec.Struct, frozen=True, dict=True):
    """The file as read. values: from tomllib, unchecked."""

    path: Path
    text: str
    values: Mapping[str, Any]

    @cached_property
    def _lines(self) -> TomlLines:
        return TomlLines(self.text)

    def place_of(self, *key: str | int) -> str:
        """`FILE:LINE` of a key, else of the closest enclosing key."""
        path: KeyPath = key
        return f"{self.path}:{self._lines.line_of(path)}"


def read_config_file(path: Path, *, required: bool) -> ConfigFile:
    """Read the file; empty if it is missing and not required. Raises SettingsError, Unavailable."""
    try:
        raw = read_limited(path, MAX_BYTES)
    except FileNotFoundError:
        if required:
            raise SettingsError(f"there is no configuration file {path}") from None
        return ConfigFile(path, "", {})
    except OSError as error:
        raise_if_exhausted(error)
        raise SettingsError(f"cannot read the configuration file {path}: {error.strerror}") from None
    except TooLarge:
        raise SettingsError(f"{path}: a configuration file may have {MAX_BYTES} bytes at most") from None
    try:
        text = raw.decode("utf-8")
        content = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: not UTF-8 at byte {error.start}") from None
    except ValueError as error:  # not only of the parser: int() has a limit of digits
        message = str(error)
        found = _AT_LINE.search(message)  # the line is at the beginning, as in other mistakes
        where = f"{path}:{found[1]}: {message[: found.start()]}" if found else f"{path}: {message}"
        raise SettingsError(where) from None
    except RecursionError:
        raise _too_deep(path) from None
    if is_deeper(content, _MAX_DEPTH):
        raise _too_deep(path)
    try:
        check_format(content, VERSION_KEY)
    except LaterFormat as later:
        reason = f"{VERSION_KEY} is {later.found}, written for a later jan-serve"
        raise SettingsError(f"{path}: {reason}") from None
    except ValueError as error:
        raise SettingsError(f"{path}: {error}") from None
    content.pop(VERSION_KEY, None)
    return ConfigFile(path, text, content)


def _too_deep(path: Path) -> SettingsError:
    return SettingsError(f"{path}: a value is nested deeper than {_MAX_DEPTH} levels")
