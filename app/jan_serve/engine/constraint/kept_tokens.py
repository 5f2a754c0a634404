"""The tokens of a vocabulary on disk: asking llama.cpp for 262,144 of them takes a second of a CPU."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import os
from array import array
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec

logger = logging.getLogger(__name__)

_SUFFIX: Final = ".tokens"
_MAGIC: Final = b"JANTOKS1"
"""With the number of the format. The digest of the rest follows, then the rest: `_Content` as MessagePack."""
_DIGEST_BYTES: Final = 16
_BODY: Final = len(_MAGIC) + _DIGEST_BYTES
_MOST_FILES: Final = 16
_MOST_BYTES: Final = 64 << 20
"""Of a file. That of 262,144 tokens has a few MiB."""


class VocabularyTokens(msgspec.Struct, frozen=True):
    """pieces: the bytes of each token; special ones have their text. controls: ids of control tokens."""

    pieces: list[bytes]
    controls: list[int]
    eos: int


class _Content(msgspec.Struct, frozen=True):
    """lengths: of the pieces in `text`, as unsigned ints of this machine. A file is read where it was written."""

    lengths: bytes
    text: bytes
    controls: list[int]
    eos: int


class KeptTokens:
    """The file of one model. Methods block on the disk; a failure costs time later, nothing else."""

    def __init__(self, folder: Path, key: Callable[[], str]) -> None:
        """key: differs for every model and llama.cpp; called once, by the first method. Raises OSError."""
        self._folder = folder
        self._key = key

    @cached_property
    def _path(self) -> Path:
        return self._folder / (self._key() + _SUFFIX)

    def read(self) -> VocabularyTokens | None:
        """None if there is no file, or one that this version did not write: the next `write` replaces it."""
        try:
            with self._path.open("rb") as file:
                raw = file.read(_MOST_BYTES)
            os.utime(self._path)
        except OSError:
            return None
        try:
            return _unpacked(raw)
        except (ValueError, RecursionError) as error:
            logger.warning("%s is not used: %s", self._path, error)
            return None

    def write(self, tokens: VocabularyTokens) -> None:
        """Replaces the file. Removes those of models that were not used for longest."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._remove_oldest()
            partial = self._path.with_suffix(f".{os.getpid()}.tmp")
            with open(partial, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(_packed(tokens))
            os.replace(partial, self._path)
        except OSError as error:
            logger.warning("the tokens of the vocabulary were not written to %s: %s", self._folder, error)

    def _remove_oldest(self) -> None:
        files = sorted(self._folder.iterdir(), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for path in files[_MOST_FILES - 1 :]:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()


def _packed(tokens: VocabularyTokens) -> bytes:
    lengths = array("I", map(len, tokens.pieces)).tobytes()
    body = msgspec.msgpack.encode(_Content(lengths, b"".join(tokens.pieces), tokens.controls, tokens.eos))
    return _MAGIC + _digest(body) + body


def _unpacked(raw: bytes) -> VocabularyTokens:
    """Raises ValueError or MsgspecError for what `_packed` does not return."""
    magic, digest, body = raw[: len(_MAGIC)], raw[len(_MAGIC) : _BODY], raw[_BODY:]
    if magic != _MAGIC:
        raise ValueError("it has another format")
    if digest != _digest(body):
        raise ValueError("it is damaged")
    content = msgspec.msgpack.decode(body, type=_Content)
    ends = [0, *itertools.accumulate(array("I", content.lengths))]
    if ends[-1] != len(content.text):
        raise ValueError(f"its tokens have {ends[-1]} bytes, and there are {len(content.text)}")
    ids = (content.eos, *content.controls)
    if min(ids) < 0 or max(ids) >= len(ends) - 1:
        raise ValueError(f"it names a token that is not among its {len(ends) - 1}")
    pieces = [content.text[first:end] for first, end in itertools.pairwise(ends)]
    return VocabularyTokens(pieces, content.controls, content.eos)


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()
