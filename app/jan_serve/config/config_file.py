"""Reads the configuration file and locates its keys."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec

from jan_serve.config.file_version import upgraded
from jan_serve.config.toml_lines import KeyPath, TomlLines
from jan_serve.core.nesting import is_deeper
from jan_serve.errors import SettingsError

MAX_BYTES: Final = 1 << 20
_MAX_DEPTH: Final = 50
_AT_LINE: Final = re.compile(r" \(at line (\d+), column \d+\)\Z")


class ConfigFile(msgspec.Struct, frozen=True, dict=True):
    """The file as read. values: from tomllib, upgraded to the current version, unchecked. version: the file's."""

    path: Path
    text: str
    values: Mapping[str, Any]
    version: int = 1

    @cached_property
    def _lines(self) -> TomlLines:
        return TomlLines(self.text)

    def place_of(self, *key: str | int) -> str:
        """`FILE:LINE` of a key, else of the closest enclosing key."""
        path: KeyPath = key
        return f"{self.path}:{self._lines.line_of(path)}"


def read_config_file(path: Path, *, required: bool) -> ConfigFile:
    """Read the file; empty if it is missing and not required. Raises SettingsError."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        if required:
            raise SettingsError(f"there is no configuration file {path}") from None
        return ConfigFile(path, "", {})
    except OSError as error:
        raise SettingsError(f"cannot read the configuration file {path}: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise SettingsError(f"{path}: a configuration file may have {MAX_BYTES} bytes at most")
    try:
        text = raw.decode("utf-8")
        content = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: not UTF-8 at byte {error.start}") from None
    except ValueError as error:  # not only of the parser: int() has a limit of digits
        raise SettingsError(_syntax_mistake(path, str(error))) from None
    except RecursionError:
        raise _too_deep(path) from None
    if is_deeper(content, _MAX_DEPTH):
        raise _too_deep(path)
    values, version = upgraded(content, path)
    return ConfigFile(path, text, values, version)


def _syntax_mistake(path: Path, message: str) -> str:
    """The parser's message, with the line at the beginning as in other mistakes."""
    found = _AT_LINE.search(message)
    return f"{path}:{found[1]}: {message[: found.start()]}" if found else f"{path}: {message}"


def _too_deep(path: Path) -> SettingsError:
    return SettingsError(f"{path}: a value is nested deeper than {_MAX_DEPTH} levels")
