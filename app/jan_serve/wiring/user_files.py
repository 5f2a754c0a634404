"""Reads the files that users keep for requests: grammars, JSON Schemas and chat templates.

An edit applies from the next request.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urldefrag

import msgspec

from jan_serve.errors import InvalidGrammar, SettingsError
from jan_serve.generation.profiles import TemplateOverride
from jan_serve.store.files import TooLarge, file_stamp, raise_if_exhausted, read_limited

MAX_FILE_BYTES: Final = 1 << 20
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")


class GrammarFiles(Mapping[str, str]):
    """GBNF texts by name. A file of the user precedes a shipped grammar of the same name.

    Files are read at each use, so edits apply from the next request.
    """

    def __init__(self, shipped: Mapping[str, str], folder: Path) -> None:
        """folder: has `NAME.gbnf` files; may not exist."""
        self._shipped = shipped
        self._folder = folder

    def __getitem__(self, name: str) -> str:
        """Raises KeyError for an unknown name, InvalidGrammar for an unusable file, Unavailable."""
        if not _NAME.match(name):
            raise KeyError(name)
        path = self._folder / f"{name}.gbnf"
        try:
            return read_limited(path, MAX_FILE_BYTES).decode("utf-8")
        except FileNotFoundError:
            return self._shipped[name]
        except OSError as error:
            raise_if_exhausted(error)
            raise InvalidGrammar(f"the grammar {name} cannot be read: {error.strerror}") from error
        except TooLarge:
            raise InvalidGrammar(f"the grammar {name} is longer than {MAX_FILE_BYTES} bytes") from None
        except UnicodeDecodeError as error:
            raise InvalidGrammar(f"the grammar {name} is not UTF-8 (byte {error.start})") from error

    def __iter__(self) -> Iterator[str]:
        own = (path.stem for path in sorted(self._folder.glob("*.gbnf")) if _NAME.match(path.stem))
        return iter(dict.fromkeys([*own, *self._shipped]))

    def __len__(self) -> int:
        return sum(1 for _ in self)


logger = logging.getLogger(__name__)

MAX_FILES: Final = 1_000


class SchemaFiles:
    """The `*.json` files of a folder. An edit applies from the next request."""

    def __init__(self, folder: Path) -> None:
        """folder: may not exist; other files in it are ignored."""
        self._folder = folder
        self._seen: dict[Path, tuple[int, int]] = {}
        self._schemas: dict[str, Any] = {}
        self._reading = threading.Lock()

    def read(self) -> Mapping[str, Any]:
        """Schemas by URI: by their `$id` and by their path in the folder. A file that cannot be used is logged once.

        Reads what has changed; blocks on the disk, one thread at a time. Raises Unavailable.
        """
        with self._reading:
            return self._read()

    def _read(self) -> Mapping[str, Any]:
        seen: dict[Path, tuple[int, int]] = {}
        for path in itertools.islice(sorted(self._folder.rglob("*.json")), MAX_FILES):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                seen[path] = (status.st_mtime_ns, status.st_size)
        if seen != self._seen:
            self._schemas = self._parsed(seen)
            self._seen = seen
        return self._schemas

    def _parsed(self, files: Iterable[Path]) -> dict[str, Any]:
        by_path: dict[str, Any] = {}
        by_id: dict[str, Any] = {}
        for path in files:
            try:
                schema = _schema(path)
            except (OSError, ValueError, RecursionError) as error:
                if isinstance(error, OSError):
                    raise_if_exhausted(error)
                logger.warning("the schema %s is not used: %s", path, error)
                continue
            by_path[path.relative_to(self._folder).as_posix()] = schema
            for key in ("$id", "id"):
                if isinstance(name := schema.get(key), str):
                    by_id.setdefault(urldefrag(name)[0], schema)
        return {**by_path, **by_id}


def _schema(path: Path) -> dict[str, Any]:
    """Raises OSError, ValueError or RecursionError."""
    try:
        data = read_limited(path, MAX_FILE_BYTES)
    except TooLarge:
        raise ValueError(f"longer than {MAX_FILE_BYTES} bytes") from None
    return msgspec.json.decode(data, type=dict[str, Any])


class TemplateFiles:
    """Reloads changed files. If that fails, it logs the error and keeps the previous text."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[tuple[int, int] | None, TemplateOverride]] = {}
        self._lock = threading.Lock()

    def get(self, value: str) -> TemplateOverride:
        """value: an absolute path or a name. Raises SettingsError if the file was never readable."""
        path = Path(value)
        if not path.is_absolute():
            return TemplateOverride(value)
        stamp = file_stamp(path)
        with self._lock:
            known = self._read.get(value)
            if known is not None and known[0] == stamp:
                return known[1]
            try:
                template = read_template(path)
            except SettingsError as error:
                if known is None:
                    raise
                logger.error("the chat template is unchanged: %s", error)
                template = known[1]
            self._read[value] = (stamp, template)
            return template


def read_template(path: Path) -> TemplateOverride:
    """Blocks on the disk. Raises SettingsError, Unavailable."""
    try:
        return TemplateOverride(path.name, read_limited(path, MAX_FILE_BYTES).decode("utf-8"))
    except TooLarge:
        raise SettingsError(f"template: {path} is longer than {MAX_FILE_BYTES} bytes") from None
    except OSError as error:
        raise_if_exhausted(error)
        raise SettingsError(f"template: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"template: {path} is not UTF-8 at byte {error.start}") from None
