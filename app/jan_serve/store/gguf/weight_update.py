"""Collects replaced weights of a model and merges them into a new file, which the server loads instead.

The model's file is unchanged, and an update lasts until the server stops. Methods block on the disk; not thread-safe.
"""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from typing import Final

import msgspec

from jan_serve.errors import InvalidModel, InvalidRequest
from jan_serve.store.files.disk_space import storage_error
from jan_serve.store.files.process_folder import ProcessFolder
from jan_serve.store.gguf.gguf_header import GgufHeader, read_gguf_header
from jan_serve.store.gguf.tensor_merge import Replacement, check_tensors, merge

logger = logging.getLogger(__name__)

MAX_PARTS: Final = 4096
_PICKLE: Final = b"\x80"
_MAGIC: Final = b"GGUF"
_ZIP: Final = b"PK"


class MergedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A file with replaced weights. number: higher is newer. tensors: number of replaced tensors."""

    path: Path
    number: int
    tensors: int


class WeightUpdate:
    """An update in progress, of one model at a time."""

    def __init__(self, folder: Path) -> None:
        """folder: created at first use; this process uses a subfolder."""
        self._root = folder
        self._folder = ProcessFolder(folder)
        self._numbers = itertools.count(1)
        self._base: Path | None = None
        self._header: GgufHeader | None = None
        self._replaced: dict[str, Replacement] = {}
        self._parts: list[Path] = []

    @property
    def parts(self) -> int:
        return len(self._parts)

    def add(self, base: Path, part: bytes) -> None:
        """Add tensors for the model file `base`. Raises InvalidRequest, StoreError, and then discards the update."""
        try:
            self._add(base, part)
        except BaseException:
            self.discard()
            raise

    def merge(self) -> MergedModel:
        """Merge all parts into one file and discard them. Raises InvalidRequest, InvalidModel, StoreError."""
        try:
            if self._header is None:
                raise InvalidRequest(
                    "serialized_named_tensors: no weights were sent before `finished`",
                    param="serialized_named_tensors",
                )
            number = next(self._numbers)
            target = self._path() / f"updated-{number}.gguf"
            merge(self._header, self._replaced, target)
            return MergedModel(path=target, number=number, tensors=len(self._replaced))
        finally:
            self.discard()

    def discard(self) -> None:
        for part in self._parts:
            _delete(part)
        self._base = self._header = None
        self._parts.clear()
        self._replaced.clear()

    def delete(self, model: MergedModel) -> None:
        """Delete a merged file. On Windows it stays while a worker has it open."""
        _delete(model.path)

    def close(self) -> None:
        """Delete all files of this process."""
        self.discard()
        self._folder.close()

    def _add(self, base: Path, part: bytes) -> None:
        _check_kind(part)
        if self._base is not None and self._base != base:
            raise InvalidRequest("model: an update of another model is not finished", param="model")
        if len(self._parts) >= MAX_PARTS:
            raise InvalidRequest(
                f"serialized_named_tensors: an update has {MAX_PARTS} parts at most",
                param="serialized_named_tensors",
            )
        if self._header is None:
            self._header = _whole(read_gguf_header(base))
        limit = 2 * self._header.file_size
        collected = sum(part.stat().st_size for part in self._parts)
        if collected + len(part) > limit:
            raise InvalidRequest(
                f"serialized_named_tensors: the parts of this update are larger than {limit} bytes, twice the model",
                param="serialized_named_tensors",
            )
        self._base = base
        path = self._store(part)
        try:
            update = read_gguf_header(path)
        except InvalidModel as error:
            raise InvalidRequest(
                f"serialized_named_tensors: {error.message}", param="serialized_named_tensors"
            ) from None
        self._replaced.update(check_tensors(self._header, update))

    def _store(self, part: bytes) -> Path:
        path = self._path() / f"part-{len(self._parts)}.gguf"
        self._parts.append(path)
        try:
            path.write_bytes(part)
        except OSError as error:
            raise storage_error(error, path.parent) from None
        return path

    def _path(self) -> Path:
        try:
            return self._folder.path()
        except OSError as error:
            raise storage_error(error, self._root) from None


def _check_kind(part: bytes) -> None:
    if part.startswith((_PICKLE, _ZIP)):
        raise InvalidRequest(
            "serialized_named_tensors: this is a pickle. Pickles are refused, because reading one runs whatever code"
            ' it holds. Send a GGUF file with the tensors, as base64, and load_format "gguf".',
            param="serialized_named_tensors",
        )
    if not part.startswith(_MAGIC):
        raise InvalidRequest(
            "serialized_named_tensors: this is not a GGUF file", param="serialized_named_tensors"
        )


def _whole(header: GgufHeader) -> GgufHeader:
    if header.integer("split.count") not in (None, 0, 1):
        raise InvalidRequest(
            "The model is split into several files: merge them (llama-gguf-split --merge) to update its weights.",
            param="model",
        )
    return header


def _delete(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("%s cannot be deleted: %s", path.name, error.strerror)
