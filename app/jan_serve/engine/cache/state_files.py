"""States of sequences on disk: the prefix cache's last tier, which outlives the worker.

One file a state, written in one piece, in a folder of the key that it belongs to (:func:`state_key`). The bytes are
llama.cpp's and are only handed back when their digest is right: a file that is cut, flipped or foreign is left out.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import struct
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jan_serve.engine.cache.prefix_index import PrefixIndex
from jan_serve.engine.llama.context import SequenceBytes
from jan_serve.engine.tokens import Tokens

logger = logging.getLogger(__name__)

_MAGIC = b"JANSTAT1"
_HEAD = struct.Struct("<8s32sQQ")  # magic, digest of all that follows it, number of tokens, bytes of state
_SUFFIX = ".state"
_PARTIAL = ".partial"
_PARTIAL_S = 60.0
_MOST_FILES = 2048  # all are looked at for each that is written
_SAMPLES, _SAMPLE_BYTES = 64, 64 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class StateFile:
    """A state on disk: the tokens it is of, where it lies, and its size in bytes."""

    tokens: Tokens
    path: Path
    size: int


def state_key(model: Iterable[Path], *layout: str) -> str:
    """What a state depends on, as a folder name: the weights, and `layout` (KV types, llama.cpp build, …).

    The weights by size, time of the last change, and blocks from all over each file: reading 4 MiB instead of
    gigabytes. Raises OSError.
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in layout:
        digest.update(part.encode() + b"\0")
    for path in model:
        status = path.stat()
        digest.update(struct.pack("<QQ", status.st_size, status.st_mtime_ns))
        with path.open("rb") as file:
            for number in range(_SAMPLES):
                file.seek(max(0, status.st_size - _SAMPLE_BYTES) * number // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


class StateFiles:
    """The states of one key under `root`, within a budget that all keys share. Not thread-safe; its methods block.

    `index`: the states by their tokens; it may be read by other threads.
    """

    def __init__(self, root: Path, key: str, budget_bytes: int) -> None:
        self._root = root
        self._folder = root / key
        self._budget = budget_bytes
        self._files: dict[Path, StateFile] = {}
        self.index: PrefixIndex[StateFile] = PrefixIndex()
        self._remove_partial()
        for path in self._paths(self._folder):
            file = _read_head(path)
            if file is not None:
                self._remember(file)

    def __iter__(self) -> Iterator[StateFile]:
        return iter(self.index)

    @property
    def size_bytes(self) -> int:
        """Bytes of this key's files."""
        return sum(file.size for file in self._files.values())

    def write(self, tokens: Tokens, data: SequenceBytes) -> bool:
        """Store a state, giving up the least recently used ones of all keys. False where it does not fit."""
        raw = np.ascontiguousarray(tokens, np.int32)
        size = _HEAD.size + raw.nbytes + len(data)
        if size > self._budget:
            return False
        path = self._folder / (hashlib.blake2b(raw.tobytes(), digest_size=16).hexdigest() + _SUFFIX)
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._make_room(size, keep=path)
            self._write_whole(path, raw, data)
        except OSError as error:
            # A cache that cannot be written costs time and nothing else.
            logger.warning("a state of %d tokens was not written to %s: %s", len(tokens), self._folder, error)
            return False
        self._remember(StateFile(tokens.copy(), path, size))
        return True

    def read(self, file: StateFile) -> SequenceBytes | None:
        """The bytes of a state, whose last use is now. None, and the file is gone, if they are not what was stored."""
        try:
            with file.path.open("rb") as stream:
                os.utime(file.path)
                head = stream.read(_HEAD.size)
                body = np.fromfile(stream, np.uint8)
        except OSError as error:
            logger.warning("%s cannot be read: %s", file.path, error)
            self._forget(file.path)
            return None
        if not _is_of(file.tokens, head, body):
            logger.warning("%s is damaged; it is removed", file.path)
            self.remove(file)
            return None
        return body[file.tokens.nbytes :]

    def remove(self, file: StateFile) -> None:
        """Forget a state and its file."""
        self._forget(file.path)
        with contextlib.suppress(OSError):
            file.path.unlink()

    def clear(self) -> None:
        """Forget all states of this key, and their files."""
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
        """Under another name first: a stop in between leaves no half of a state."""
        head = _HEAD.pack(_MAGIC, b"", len(tokens), len(data))
        digest = hashlib.blake2b(head[40:], digest_size=32)
        digest.update(tokens.tobytes())
        digest.update(data.data)
        handle, name = tempfile.mkstemp(dir=self._folder, suffix=_PARTIAL)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(_HEAD.pack(_MAGIC, digest.digest(), len(tokens), len(data)))
                stream.write(tokens.tobytes())
                stream.write(data.data)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise

    def _make_room(self, size: int, keep: Path) -> None:
        """Remove the least recently used files of all keys until `size` more bytes fit, and one more file."""
        known: list[tuple[float, int, Path]] = []
        for path in self._paths(*self._root.iterdir()):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                known.append((status.st_mtime, status.st_size, path))
        known = sorted(entry for entry in known if entry[2] != keep)
        total = sum(size for _, size, _ in known)
        for number, (_, file_size, path) in enumerate(known):
            if total + size <= self._budget and len(known) - number < _MOST_FILES:
                return
            total -= file_size
            self._forget(path)
            with contextlib.suppress(FileNotFoundError):
                path.unlink()

    def _remove_partial(self) -> None:
        """What a worker wrote that was ended meanwhile. Of others only what nobody can be writing any more."""
        for path in self._root.glob(f"*/*{_PARTIAL}"):
            with contextlib.suppress(OSError):
                if time.time() - path.lstat().st_mtime > _PARTIAL_S:
                    path.unlink()

    @staticmethod
    def _paths(*folders: Path) -> list[Path]:
        """The state files in these folders; whatever else lies there is not ours."""
        return [
            path
            for folder in folders
            if folder.is_dir() and not folder.is_symlink()
            for path in sorted(folder.iterdir())
            if path.suffix == _SUFFIX and path.is_file() and not path.is_symlink()
        ]


def _digest(head: bytes, body: SequenceBytes) -> bytes:
    digest = hashlib.blake2b(head[40:], digest_size=32)
    digest.update(body.data)
    return digest.digest()


def _is_of(tokens: Tokens, head: bytes, body: SequenceBytes) -> bool:
    """Whether a file is whole, and still the state of these tokens."""
    if len(head) != _HEAD.size:
        return False
    _, digest, n_tokens, n_bytes = _HEAD.unpack(head)
    return (
        (n_tokens, tokens.nbytes + n_bytes) == (len(tokens), len(body))
        and body[: tokens.nbytes].tobytes() == tokens.tobytes()
        and digest == _digest(head, body)
    )


def _read_head(path: Path) -> StateFile | None:
    """The tokens of a file whose sizes agree; its bytes are checked when they are used."""
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD.size)
            if len(head) != _HEAD.size:
                return None
            magic, _, n_tokens, n_bytes = _HEAD.unpack(head)
            size = path.stat().st_size
            if magic != _MAGIC or not n_tokens or not n_bytes or size != _HEAD.size + 4 * n_tokens + n_bytes:
                return None
            return StateFile(np.fromfile(stream, np.int32, n_tokens), path, size)
    except OSError as error:
        logger.warning("%s cannot be read: %s", path, error)
        return None
