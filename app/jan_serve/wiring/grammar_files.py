"""Grammars that requests use by name: shipped ones and the user's files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from jan_serve.errors import InvalidGrammar
from jan_serve.store.files.exhaustion import raise_if_exhausted

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
            with path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except FileNotFoundError:
            return self._shipped[name]
        except OSError as error:
            raise_if_exhausted(error)
            raise InvalidGrammar(f"the grammar {name} cannot be read: {error.strerror}") from error
        if len(data) > MAX_FILE_BYTES:
            raise InvalidGrammar(f"the grammar {name} is longer than {MAX_FILE_BYTES} bytes")
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InvalidGrammar(f"the grammar {name} is not UTF-8 (byte {error.start})") from error

    def __iter__(self) -> Iterator[str]:
        own = (path.stem for path in sorted(self._folder.glob("*.gbnf")) if _NAME.match(path.stem))
        return iter(dict.fromkeys([*own, *self._shipped]))

    def __len__(self) -> int:
        return sum(1 for _ in self)
