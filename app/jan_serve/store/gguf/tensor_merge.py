"""Writes a copy of a GGUF file with some tensors replaced.

Format: ggml's docs/gguf.md. The replacements are untrusted: names, shapes and types must match the base's, and
floating-point values must be finite.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from jan_serve.errors import InsufficientStorage, InvalidModel, InvalidRequest
from jan_serve.store.files.disk_space import storage_error
from jan_serve.store.gguf.ggml_types import TENSOR_TYPES
from jan_serve.store.gguf.gguf_header import GgufHeader, TensorInfo, read_gguf_header

_BLOCK: Final = 8 * 1024 * 1024
_TYPE_IDS: Final = {known.name: number for number, known in TENSOR_TYPES.items()}
_MATRIX_TYPES: Final = frozenset({"F32", "F16", "BF16"})
"""Types allowed besides the base's. Only for matrices: llama.cpp's kernels need biases and norms in the base's type."""

_EXPONENTS: Final[Mapping[str, tuple[str, int]]] = {
    "F32": ("<u4", 0x7F80_0000),
    "F16": ("<u2", 0x7C00),
    "BF16": ("<u2", 0x7F80),
}
"""By type: numpy dtype and exponent mask. A value with all exponent bits set is infinite or NaN."""


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
            raise _refused(
                f"{tensor.name!r} has the shape {list(tensor.shape)}, and the model's {list(old.shape)}"
            )
        is_matrix = len(_dimensions(old.shape)) > 1
        allowed = {old.type, *(_MATRIX_TYPES if is_matrix else ())}
        if tensor.type not in allowed:
            raise _refused(
                f"{tensor.name!r} has the type {tensor.type}; possible are {', '.join(sorted(allowed))}"
            )
        _check_values(update, tensor)
        found[tensor.name] = Replacement(update, tensor)
    return found


def merge(base: GgufHeader, replaced: Mapping[str, Replacement], target: Path) -> None:
    """Write the base with these tensors to the new file `target`. Blocks on the disk.

    Raises InsufficientStorage, StoreError, InvalidModel, and then leaves no new file. Never overwrites a file.
    """
    tensors = [replaced[old.name].tensor if old.name in replaced else old for old in base.tensors]
    sources = [replaced[old.name].header if old.name in replaced else base for old in base.tensors]
    size = base.data_offset + sum(_padded(tensor.n_bytes, base.alignment) for tensor in tensors)
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _check_space(target.parent, size)
        with _new_file(target) as out:
            _write(out, base, tensors, sources)
            read_gguf_header(target)
    except OSError as error:
        raise storage_error(error, target.parent) from None


def _check_space(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise InsufficientStorage(
            f"The updated model needs {size} bytes in {folder}, and the disk has {free}."
        )


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


def _refused(reason: str) -> InvalidRequest:
    return InvalidRequest(
        f"serialized_named_tensors: these weights are refused: {reason}", param="serialized_named_tensors"
    )
