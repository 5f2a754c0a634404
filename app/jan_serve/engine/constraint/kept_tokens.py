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
_MOST_FILES: Final = 16
_DIGEST_BYTES: Final = 16


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
        """None if there is no file, or a damaged one."""
        try:
            raw = self._path.read_bytes()
            os.utime(self._path)
        except OSError:
            return None
        digest, body = raw[:_DIGEST_BYTES], raw[_DIGEST_BYTES:]
        if hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest() != digest:
            logger.warning("%s is damaged and is not used", self._path)
            return None
        content = msgspec.msgpack.decode(body, type=_Content)
        ends = [0, *itertools.accumulate(array("I", content.lengths))]
        pieces = [content.text[first:end] for first, end in itertools.pairwise(ends)]
        return VocabularyTokens(pieces, content.controls, content.eos)

    def write(self, tokens: VocabularyTokens) -> None:
        """Replaces the file. Removes those of models that were not used for longest."""
        lengths = array("I", map(len, tokens.pieces)).tobytes()
        body = msgspec.msgpack.encode(_Content(lengths, b"".join(tokens.pieces), tokens.controls, tokens.eos))
        digest = hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._remove_oldest()
            partial = self._path.with_suffix(f".{os.getpid()}.tmp")
            partial.write_bytes(digest + body)
            os.replace(partial, self._path)
        except OSError as error:
            logger.warning("the tokens of the vocabulary were not written to %s: %s", self._folder, error)

    def _remove_oldest(self) -> None:
        files = sorted(self._folder.iterdir(), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for path in files[_MOST_FILES - 1 :]:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
