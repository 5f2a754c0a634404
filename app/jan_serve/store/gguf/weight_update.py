"""Collects replaced weights of a model and merges them into a new file, which the server loads instead.

The model's file is unchanged, and an update lasts until the server stops. Methods block on the disk; not thread-safe.
The replacements are untrusted: names, shapes and types must match the base's, and floating-point values must be finite.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import shutil
import struct
import tempfile
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import filelock
import msgspec

from jan_serve.errors import InsufficientStorage, InvalidModel, InvalidRequest
from jan_serve.store.files import writing_to
from jan_serve.store.gguf.gguf_header import GgufHeader, TensorInfo, read_gguf_header
from jan_serve.store.gguf.quantisation import TENSOR_TYPES

_LOCK: Final = ".lock"
_LOCK_TIMEOUT_S: Final = 30.0
"""Other processes hold the root's lock only to create or delete folders."""


class ProcessFolder:
    """A folder below a root that several processes share, also in containers with a common disk.

    Created at first use, deleted on close. A live process holds an OS lock in it: containers reuse process ids. Not
    thread-safe; methods block on the disk.
    """

    def __init__(self, root: Path) -> None:
        """root: created if missing; holds only such folders."""
        self._root = root
        self._path: Path | None = None
        self._lock: filelock.BaseFileLock | None = None

    def path(self) -> Path:
        """The folder, readable by this user only. Deletes the folders of dead processes first. Raises OSError."""
        if self._path is None:
            self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Between its creation and its lock, a folder would look abandoned.
            with filelock.FileLock(self._root / _LOCK, timeout=_LOCK_TIMEOUT_S, thread_local=False):
                self._delete_abandoned()
                path = Path(tempfile.mkdtemp(dir=self._root))
                lock = _lock_of(path)
                lock.acquire(blocking=False)
            self._path, self._lock = path, lock
        return self._path

    def close(self) -> None:
        """Delete the folder with its content. The next `path()` creates another."""
        if self._path is None or self._lock is None:
            return
        # Windows cannot delete open files.
        self._lock.release()
        shutil.rmtree(self._path, ignore_errors=True)
        self._path = self._lock = None

    def _delete_abandoned(self) -> None:
        for folder in self._root.iterdir():
            if folder.is_symlink() or not folder.is_dir():
                continue
            lock = _lock_of(folder)
            try:
                lock.acquire(blocking=False)
            except OSError:  # held, or not ours to delete
                continue
            lock.release()
            shutil.rmtree(folder, ignore_errors=True)


def _lock_of(folder: Path) -> filelock.BaseFileLock:
    return filelock.FileLock(folder / _LOCK, thread_local=False)


_BLOCK: Final = 8 * 1024 * 1024
_TYPE_IDS: Final = {known.name: number for number, known in TENSOR_TYPES.items()}
_MATRIX_TYPES: Final = frozenset({"F32", "F16", "BF16"})
"""Types allowed besides the base's. Only for matrices: llama.cpp's kernels need biases and norms in the base's type."""

_EXPONENTS: Final[Mapping[str, tuple[str, int]]] = {
    "F32": ("<u4", 0x7F80_0000),
    "F16": ("<u2", 0x7C00),
    "BF16": ("<u2", 0x7F80),
}
"""numpy dtype and exponent mask by type. A value with all exponent bits set is infinite or NaN."""


class Replacement(msgspec.Struct, frozen=True):
    """A tensor of `header`'s file that replaces the base's tensor of the same name."""

    header: GgufHeader
    tensor: TensorInfo


def check_tensors(base: GgufHeader, update: GgufHeader) -> dict[str, Replacement]:
    """The replacements in `update`, by name. Blocks: reads all values. Raises InvalidRequest with the tensor's name."""
    if not update.tensors:
        raise _refused("it holds no tensors")
    architecture = update.metadata.get("general.architecture")
    if architecture is not None and architecture != base.metadata.get("general.architecture"):
        raise _refused(f"it is for the architecture {str(architecture)[:40]!r}")
    known = {tensor.name: tensor for tensor in base.tensors}
    found: dict[str, Replacement] = {}
    for tensor in update.tensors:
        old = known.get(tensor.name)
        if old is None:
            raise _refused(f"the model has no tensor {tensor.name!r}")
        if _dimensions(tensor.shape) != _dimensions(old.shape):
            ours = list(old.shape)
            raise _refused(f"{tensor.name!r} has the shape {list(tensor.shape)}, and the model's {ours}")
        is_matrix = len(_dimensions(old.shape)) > 1
        allowed = {old.type, *(_MATRIX_TYPES if is_matrix else ())}
        if tensor.type not in allowed:
            possible = ", ".join(sorted(allowed))
            raise _refused(f"{tensor.name!r} has the type {tensor.type}; possible are {possible}")
        _check_values(update, tensor)
        found[tensor.name] = Replacement(update, tensor)
    return found


def merge(base: GgufHeader, replaced: Mapping[str, Replacement], target: Path) -> None:
    """Write the base with these tensors to the new file `target`. Blocks on the disk. Raises InsufficientStorage,
    StoreError, InvalidModel, and then leaves no new file. Never overwrites a file."""
    tensors = [replaced[old.name].tensor if old.name in replaced else old for old in base.tensors]
    sources = [replaced[old.name].header if old.name in replaced else base for old in base.tensors]
    size = base.data_offset + sum(_padded(tensor.n_bytes, base.alignment) for tensor in tensors)
    with writing_to(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        free = shutil.disk_usage(target.parent).free
        if size > free:
            raise InsufficientStorage(
                f"The updated model needs {size} bytes in {target.parent}, and the disk has {free}."
            )
        with _new_file(target) as out:
            _write(out, base, tensors, sources)
            read_gguf_header(target)


@contextlib.contextmanager
def _new_file(path: Path) -> Generator[BinaryIO]:
    """Create a file; delete it if the block fails. Raises FileExistsError rather than overwrite a served file."""
    file = path.open("xb")
    try:
        with file:
            yield file
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        raise


def _write(
    out: BinaryIO, base: GgufHeader, tensors: Sequence[TensorInfo], sources: Sequence[GgufHeader]
) -> None:
    with base.path.open("rb") as source:
        _copy(source, out, 0, base.tensors_offset)
    offset = 0
    for tensor in tensors:
        name = tensor.name.encode()
        shape = tensor.shape
        out.write(struct.pack("<Q", len(name)) + name)
        out.write(struct.pack(f"<I{len(shape)}Q", len(shape), *shape))
        out.write(struct.pack("<IQ", _TYPE_IDS[tensor.type], offset))
        offset += _padded(tensor.n_bytes, base.alignment)
    _pad(out, base.alignment)
    with contextlib.ExitStack() as opened:
        files = {path: opened.enter_context(path.open("rb")) for path in {header.path for header in sources}}
        for tensor, header in zip(tensors, sources, strict=True):
            _copy(files[header.path], out, header.data_offset + tensor.offset, tensor.n_bytes)
            _pad(out, base.alignment)
    out.flush()
    os.fsync(out.fileno())


def _copy(source: BinaryIO, out: BinaryIO, start: int, count: int) -> None:
    source.seek(start)
    while count:
        piece = source.read(min(count, _BLOCK))
        if not piece:
            raise InvalidModel("a file became shorter while it was copied")
        out.write(piece)
        count -= len(piece)


def _pad(out: BinaryIO, alignment: int) -> None:
    out.write(b"\0" * (-out.tell() % alignment))


def _padded(size: int, alignment: int) -> int:
    return size + -size % alignment


def _dimensions(shape: Sequence[int]) -> tuple[int, ...]:
    """Without trailing ones, which some writers omit."""
    kept = list(shape)
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return tuple(kept)


def _check_values(header: GgufHeader, tensor: TensorInfo) -> None:
    """Raises InvalidRequest if a floating-point value is not finite."""
    form = _EXPONENTS.get(tensor.type)
    if form is None:
        return
    # Imported late: only weight updates need it.
    import numpy as np

    kind, exponent = form
    with header.path.open("rb") as file:
        file.seek(header.data_offset + tensor.offset)
        left = tensor.n_bytes
        while left:
            piece = file.read(min(left, _BLOCK))
            if not piece:
                raise InvalidModel("a file became shorter while it was read")
            left -= len(piece)
            values = np.frombuffer(piece, kind)
            if bool(((values & exponent) == exponent).any()):
                raise _refused(f"{tensor.name!r} has values that are not finite")


def _invalid(reason: str) -> InvalidRequest:
    return InvalidRequest(f"serialized_named_tensors: {reason}", param="serialized_named_tensors")


def _refused(reason: str) -> InvalidRequest:
    return _invalid(f"these weights are refused: {reason}")


logger = logging.getLogger(__name__)

MAX_PARTS: Final = 4096


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
                raise _invalid("no weights were sent before `finished`")
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
            raise _invalid(f"an update has {MAX_PARTS} parts at most")
        if self._header is None:
            self._header = _whole(read_gguf_header(base))
        limit = 2 * self._header.file_size
        collected = sum(part.stat().st_size for part in self._parts)
        if collected + len(part) > limit:
            raise _invalid(f"the parts of this update are larger than {limit} bytes, twice the model")
        self._base = base
        path = self._path() / f"part-{len(self._parts)}.gguf"
        self._parts.append(path)
        with writing_to(path.parent):
            path.write_bytes(part)
        try:
            update = read_gguf_header(path)
        except InvalidModel as error:
            raise _invalid(error.message) from None
        self._replaced.update(check_tensors(self._header, update))

    def _path(self) -> Path:
        with writing_to(self._root):
            return self._folder.path()


def _check_kind(part: bytes) -> None:
    if part.startswith((b"\x80", b"PK")):
        raise _invalid(
            "this is a pickle. Pickles are refused, because reading one runs whatever code it holds. Send a GGUF file"
            ' with the tensors, as base64, and load_format "gguf".'
        )
    if not part.startswith(b"GGUF"):
        raise _invalid("this is not a GGUF file")


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
