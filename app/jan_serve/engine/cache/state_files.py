"""States of sequences on disk, the last tier of the prefix cache, and the index of states."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

from jan_serve.engine.cache.prefix_index import PrefixIndex, Tokenised
from jan_serve.engine.llama.context import SequenceBytes
from jan_serve.engine.tokens import Tokens
from jan_serve.errors import shortage

logger = logging.getLogger(__name__)

_MAGIC = b"JANSTAT1"
_HEADER = struct.Struct("<8s32sQQ")  # magic, digest of everything after it, number of tokens, bytes of state
_SUFFIX = ".state"
_PARTIAL = ".partial"
_PARTIAL_S = 60.0
_MAX_FILES = 2048  # each write lists all of them
_MAX_TOKENS = 1 << 24
_MAX_BUDGET = 8 * 2**30


class _Damaged(Exception):
    """A state file that is ours by its first bytes and cannot be whole."""


class StateFile(Tokenised, frozen=True, eq=False):
    """A state on disk. size: of the file, in bytes."""

    path: Path
    size: int


def default_budget(root: Path) -> int:
    """Bytes for the files under `root`, if the settings do not say how many. Raises OSError."""
    return min(_MAX_BUDGET, psutil.disk_usage(str(root)).free // 10)


def file_bytes(num_tokens: int, state_bytes: int) -> int:
    """The size of a file with a state of so many bytes."""
    return _HEADER.size + 4 * num_tokens + state_bytes


class StateFiles:
    """The states of one key under `root`, within a budget shared by all keys. Not thread-safe; methods block. llama.cpp
    parses the bytes, so only those with the right digest are returned. A damaged file costs itself only. max_tokens:
    states of more stay on disk and are not used. index: the states by their tokens; other threads may read it."""

    def __init__(self, root: Path, key: str, budget_bytes: int, *, max_tokens: int = _MAX_TOKENS) -> None:
        self._root = root
        self._folder = root / key
        self.budget_bytes = budget_bytes
        self._files: dict[Path, StateFile] = {}
        self.index: PrefixIndex[StateFile] = PrefixIndex()
        self._remove_partial()
        for path in self._paths(self._folder):
            try:
                file = _read_header(path, budget_bytes, max_tokens)
            except _Damaged:
                logger.warning("%s is damaged and will be removed", path)
                with contextlib.suppress(OSError):
                    path.unlink()
                continue
            if file is not None:
                self._remember(file)

    def __iter__(self) -> Iterator[StateFile]:
        return iter(self.index)

    def write(self, tokens: Tokens, data: SequenceBytes) -> bool:
        """Write a state, evicting the least recently used ones of all keys. False if it does not fit."""
        raw = np.ascontiguousarray(tokens, np.int32)
        size = file_bytes(len(raw), len(data))
        if size > self.budget_bytes:
            return False
        path = self._folder / (hashlib.blake2b(raw.tobytes(), digest_size=16).hexdigest() + _SUFFIX)
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._make_room(size, keep=path)
            self._write_whole(path, raw, data)
        except OSError as error:
            # A failed write of the cache only costs time later.
            logger.warning("a state of %d tokens was not written to %s: %s", len(tokens), self._folder, error)
            return False
        self._remember(StateFile(tokens.copy(), path, size))
        return True

    def read(self, file: StateFile) -> SequenceBytes | None:
        """The bytes of a state; marks it as used. None, and the file is removed, if they are corrupt."""
        try:
            with file.path.open("rb") as stream:
                os.utime(file.path)
                header = stream.read(_HEADER.size)
                # What it has beyond its size would be read into memory, too.
                is_as_long = os.fstat(stream.fileno()).st_size == file.size
                body = np.fromfile(stream, np.uint8) if is_as_long else np.empty(0, np.uint8)
        except (OSError, MemoryError) as error:
            logger.warning("%s cannot be read: %s", file.path, error)
            if shortage(error) is None:  # else it can be read later
                self._forget(file.path)
            return None
        if not _is_of(file.tokens, header, body):
            logger.warning("%s is corrupt and will be removed", file.path)
            self.remove(file)
            return None
        return body[file.tokens.nbytes :]

    def remove(self, file: StateFile) -> None:
        self._forget(file.path)
        with contextlib.suppress(OSError):
            file.path.unlink()

    def clear(self) -> None:
        for file in self:
            self.remove(file)

    def _remember(self, file: StateFile) -> None:
        self._forget(file.path)
        self._files[file.path] = file
        self.index.add(file)

    def _forget(self, path: Path) -> None:
        file = self._files.pop(path, None)
        if file is not None:
            self.index.remove(file)

    def _write_whole(self, path: Path, tokens: Tokens, data: SequenceBytes) -> None:
        """Write atomically: to a temporary file first, then rename."""
        body = (tokens.tobytes(), data.data)
        header = _HEADER.pack(_MAGIC, b"", len(tokens), len(data))
        header = _HEADER.pack(_MAGIC, _digest(header, *body), len(tokens), len(data))
        handle, name = tempfile.mkstemp(dir=self._folder, suffix=_PARTIAL)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.writelines((header, *body))
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise

    def _make_room(self, size: int, keep: Path) -> None:
        """Remove the least recently used files of all keys until `size` more bytes fit, and one more file."""
        found: list[tuple[float, int, Path]] = []
        for path in self._paths(*self._root.iterdir()):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        found = sorted(entry for entry in found if entry[2] != keep)
        total = sum(size for _, size, _ in found)
        for number, (_, file_size, path) in enumerate(found):
            if total + size <= self.budget_bytes and len(found) - number < _MAX_FILES:
                return
            total -= file_size
            self._forget(path)
            with contextlib.suppress(FileNotFoundError):
                path.unlink()

    def _remove_partial(self) -> None:
        """Remove temporary files of killed workers: those too old for a write in progress."""
        for path in self._root.glob(f"*/*{_PARTIAL}"):
            with contextlib.suppress(OSError):
                if time.time() - path.lstat().st_mtime > _PARTIAL_S:
                    path.unlink()

    @staticmethod
    def _paths(*folders: Path) -> list[Path]:
        """The state files in these folders; other files are not ours."""
        return [
            path
            for folder in folders
            if folder.is_dir() and not folder.is_symlink()
            for path in sorted(folder.iterdir())
            if path.suffix == _SUFFIX and path.is_file() and not path.is_symlink()
        ]


def _digest(header: bytes, *body: bytes | memoryview) -> bytes:
    digest = hashlib.blake2b(header[40:], digest_size=32)
    for part in body:
        digest.update(part)
    return digest.digest()


def _is_of(tokens: Tokens, header: bytes, body: SequenceBytes) -> bool:
    """Whether a file is complete and has the state of these tokens."""
    if len(header) != _HEADER.size:
        return False
    _, digest, n_tokens, n_bytes = _HEADER.unpack(header)
    return (
        (n_tokens, tokens.nbytes + n_bytes) == (len(tokens), len(body))
        and body[: tokens.nbytes].tobytes() == tokens.tobytes()
        and digest == _digest(header, body.data)
    )


def _read_header(path: Path, most_bytes: int, most_tokens: int) -> StateFile | None:
    """The tokens of a file within the limits; `read` checks its bytes. None if it is none of ours, or beyond them.
    Raises _Damaged if its header contradicts itself."""
    try:
        with path.open("rb") as stream:
            header = stream.read(_HEADER.size)
            if not header.startswith(_MAGIC):
                return None
            if len(header) != _HEADER.size:
                raise _Damaged
            _, _, n_tokens, n_bytes = _HEADER.unpack(header)
            size = os.fstat(stream.fileno()).st_size
            if not n_tokens or not n_bytes or size != file_bytes(n_tokens, n_bytes):
                raise _Damaged
            # A size of the file's own choice must not decide how much is read.
            if size > most_bytes or n_tokens > most_tokens:
                return None
            tokens = np.fromfile(stream, np.int32, n_tokens)
            return StateFile(tokens, path, size) if len(tokens) == n_tokens else None
    except OSError as error:
        logger.warning("%s cannot be read: %s", path, error)
        return None
