"""Reads the header of an untrusted GGUF file (versions 2 and 3, little endian): metadata and tensor sizes.

Every count, length and offset is checked against the file before use; violations raise InvalidModel with the reason.
Format: ggml's docs/gguf.md.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import msgspec

from jan_serve.errors import InvalidModel
from jan_serve.store.files import raise_if_exhausted
from jan_serve.store.gguf.quantisation import TENSOR_TYPES

T = TypeVar("T")

MAX_HEADER_BYTES: Final = 512 << 20
MAX_KEYS: Final = 4_096  # ggml compares each key with all before it
MAX_TENSORS: Final = 1_000_000
MAX_KEY_BYTES: Final = 65_535
MAX_STRING_BYTES: Final = 64 << 20
MAX_TENSOR_NAME_BYTES: Final = 63
MAX_DIMENSIONS: Final = 4
MAX_ALIGNMENT: Final = 1 << 20
_MAX_TAIL: Final = 1 << 30
_INT64_MAX: Final = (1 << 63) - 1
_FIRST_BYTES: Final = 1 << 16
_READ_BYTES: Final = 1 << 20
_KEPT_ARRAY_LENGTH: Final = 256

STRING: Final = 8
_ARRAY: Final = 9
_SCALARS: Final[Mapping[int, struct.Struct]] = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_UINT32: Final = 4
_INT32: Final = 5
_FLOAT32: Final = 6
_FLOAT64: Final = 12

_TOKENS: Final = "tokenizer.ggml.tokens"
_TOKEN_TYPES: Final = "tokenizer.ggml.token_type"
_SCORES: Final = "tokenizer.ggml.scores"
_BYTE_TOKEN_TYPE: Final = 6
_BYTE_TOKEN: Final = re.compile(rb"<0x[0-9A-Fa-f]{2}>\Z")

Scalar = int | float | bool | str


class ArrayValue(msgspec.Struct, frozen=True):
    """A metadata array. type: GGUF type of the elements. items: empty for arrays of more than 256 elements."""

    type: int
    length: int
    items: tuple[Scalar, ...] = ()


class TensorInfo(msgspec.Struct, frozen=True):
    """shape: innermost dimension first. type: ggml's name. offset: from data_offset."""

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    n_bytes: int


class Vocabulary(msgspec.Struct, frozen=True):
    """count: of tokens. distinct: of their texts, each up to its first NUL, where llama.cpp ends it. missing_bytes:
    those with neither a token <0xHH> nor, below 128, one of their own."""

    count: int
    distinct: int
    missing_bytes: tuple[int, ...]


class GgufHeader(msgspec.Struct, frozen=True):
    """vocabulary: None without tokens. doubles: the keys of numbers of 64 bits with a fraction. metadata_offset,
    tensors_offset, data_offset: file offsets of the keys, the list of tensors and their data."""

    path: Path
    version: int
    metadata: Mapping[str, Scalar | ArrayValue]
    tensors: tuple[TensorInfo, ...]
    data_offset: int
    file_size: int
    metadata_offset: int
    tensors_offset: int
    alignment: int
    vocabulary: Vocabulary | None = None
    doubles: frozenset[str] = frozenset()

    def text(self, key: str) -> str | None:
        """The value of a string key, None if missing. Raises InvalidModel for another type."""
        value = self.metadata.get(key)
        if value is None or isinstance(value, str):
            return value
        raise InvalidModel(f"{self.path.name}: the key {key} is not a string")

    def integer(self, key: str) -> int | None:
        """The value of an integer key, None if missing. Raises InvalidModel for another type."""
        value = self.metadata.get(key)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        raise InvalidModel(f"{self.path.name}: the key {key} is not an integer")


def read_gguf_header(path: Path) -> GgufHeader:
    """Read and check the header of `path`. Blocks on the disk (about 0.2 s for a vocabulary of 150,000 tokens).
    Raises InvalidModel, also if the file cannot be read; Unavailable."""
    return _read(path, _HeaderReader.read)


def check_magic(path: Path) -> None:
    """Read the first bytes alone. Raises as `read_gguf_header`."""
    _read(path, _HeaderReader.check_magic)


def _read(path: Path, how: Callable[[_HeaderReader], T]) -> T:
    try:
        with path.open("rb") as file:
            return how(_HeaderReader(path, file))
    except OSError as error:
        raise_if_exhausted(error)
        raise InvalidModel(f"{path.name}: cannot be read: {error.strerror}") from None
    except _Malformed as error:
        raise InvalidModel(f"{path.name} is not a valid GGUF file: {error}") from None


class _Malformed(Exception):
    """The file violates the format; the public error adds the file name."""


class _HeaderReader:
    """One pass over the header, in bounded reads: a length in the file never determines an allocation."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._size = file.seek(0, 2)
        file.seek(0)
        self._data = bytearray()
        self._at = 0
        self._vocabulary: Vocabulary | None = None
        self._texts: list[bytes] = []
        self._byte_token_ids: list[int] = []
        self._doubles: set[str] = set()

    def read(self) -> GgufHeader:
        version = self.check_magic()
        n_tensors = self._number("<Q", "the number of tensors", MAX_TENSORS)
        n_keys = self._number("<Q", "the number of keys", MAX_KEYS)
        metadata_offset = self._at
        metadata: dict[str, Scalar | ArrayValue] = {}
        for _ in range(n_keys):
            key = self._string("a key", MAX_KEY_BYTES)
            if key in metadata:
                raise _Malformed(f"the key {key!r} is there twice")
            metadata[key] = self._value(key)
        self._check_vocabulary(metadata)
        alignment = _alignment(metadata)
        tensors_offset = self._at
        tensors = tuple(self._tensor() for _ in range(n_tensors))
        data_offset = _pad(self._at, alignment)
        _check_layout(tensors, data_offset, self._size, alignment)
        return GgufHeader(
            path=self._path,
            version=version,
            metadata=metadata,
            tensors=tensors,
            data_offset=data_offset,
            file_size=self._size,
            metadata_offset=metadata_offset,
            tensors_offset=tensors_offset,
            alignment=alignment,
            vocabulary=self._vocabulary,
            doubles=frozenset(self._doubles),
        )

    def check_magic(self) -> int:
        """The version of the format."""
        magic = self._take(4, "its first word, GGUF")
        if magic != b"GGUF":
            raise _Malformed(f"it begins with {bytes(magic)!r}, not with GGUF")
        version = self._number("<I", "the version")
        if version & 0xFFFF == 0:
            raise _Malformed("it is big endian")
        if version not in (2, 3):
            raise _Malformed(f"version {version} is not known (2 and 3 are)")
        return version

    def _fill(self, end: int, part: str) -> None:
        """Read up to offset `end`."""
        if end > self._size:
            raise _Malformed(f"it has only {self._size} bytes, and ends inside {part}")
        if end > MAX_HEADER_BYTES:
            raise _Malformed(f"its header is larger than {MAX_HEADER_BYTES} bytes")
        while len(self._data) < end:
            # Most headers without a large vocabulary fit the first piece.
            size = min(max(_FIRST_BYTES, len(self._data)), _READ_BYTES)
            piece = self._file.read(max(size, end - len(self._data)))
            if not piece:
                raise _Malformed(f"it has only {self._size} bytes, and ends inside {part}")
            self._data += piece

    def _take(self, count: int, part: str) -> bytes:
        end = self._at + count
        if end > len(self._data):
            self._fill(end, part)
        piece = bytes(self._data[self._at : end])
        self._at = end
        return piece

    def _number(self, form: str, part: str, limit: int = _INT64_MAX) -> int:
        (value,) = struct.unpack(form, self._take(struct.calcsize(form), part))
        if value > limit:
            raise _Malformed(f"{part} is {value}, more than {limit}")
        return value

    def _string(self, part: str, limit: int = MAX_STRING_BYTES) -> str:
        count = self._number("<Q", f"the length of {part}", limit)
        try:
            return self._take(count, part).decode("utf-8")
        except UnicodeDecodeError:
            raise _Malformed(f"{part} is not UTF-8") from None

    def _value(self, key: str) -> Scalar | ArrayValue:
        kind = self._number("<I", f"the type of {key!r}")
        if kind == STRING:
            return self._string(f"the value of {key!r}")
        if kind == _ARRAY:
            return self._array(key)
        form = _SCALARS.get(kind)
        if form is None:
            raise _Malformed(f"the key {key!r} has the unknown type {kind}")
        if kind == _FLOAT64:
            self._doubles.add(key)
        (value,) = form.unpack(self._take(form.size, f"the value of {key!r}"))
        return value

    def _array(self, key: str) -> ArrayValue:
        kind = self._number("<I", f"the element type of {key!r}")
        length = self._number("<Q", f"the length of {key!r}")
        if kind == STRING:
            # Each string takes at least 8 bytes for its length.
            self._check_room(length, 8, key)
            if length <= _KEPT_ARRAY_LENGTH and key != _TOKENS:
                items = tuple(self._string(f"an element of {key!r}") for _ in range(length))
                return ArrayValue(kind, length, items)
            first = self._at
            ends = self._skip_strings(length, key)
            if key == _TOKENS:
                self._read_vocabulary(first, ends)
            return ArrayValue(kind, length)
        form = _SCALARS.get(kind)
        if form is None:
            raise _Malformed(f"the array {key!r} has the element type {kind}")
        self._check_room(length, form.size, key)
        raw = self._take(length * form.size, f"the array {key!r}")
        if key == _TOKEN_TYPES and kind in (_UINT32, _INT32):
            types = enumerate(struct.iter_unpack("<I", raw))
            self._byte_token_ids = [index for index, (each,) in types if each == _BYTE_TOKEN_TYPE]
        if length > _KEPT_ARRAY_LENGTH:
            return ArrayValue(kind, length)
        return ArrayValue(kind, length, tuple(value for (value,) in form.iter_unpack(raw)))

    def _check_room(self, length: int, each: int, key: str) -> None:
        if length > (self._size - self._at) // each:
            raise _Malformed(f"the array {key!r} of {length} elements is longer than the file")

    def _skip_strings(self, count: int, key: str) -> list[int]:
        """Where each ends; its length of 8 bytes precedes it. Hot loop: a vocabulary and its merges."""
        length_at = struct.Struct("<Q").unpack_from
        data, at = self._data, self._at
        ends: list[int] = []
        for _ in range(count):
            if at + 8 > len(data):
                self._fill(at + 8, f"the array {key!r}")
            (length,) = length_at(data, at)
            at += 8 + length
            if length > MAX_STRING_BYTES:
                raise _Malformed(f"an element of {key!r} has {length} bytes")
            if at > len(data):
                self._fill(at, f"the array {key!r}")
            ends.append(at)
        self._at = at
        return ends

    def _read_vocabulary(self, first: int, ends: list[int]) -> None:
        """first: where the array begins."""
        data = bytes(self._data)
        texts = [data[start + 8 : end] for start, end in zip((first, *ends), ends, strict=False)]
        if b"\0" in b" ".join(texts):
            texts = [text.partition(b"\0")[0] for text in texts]
        words = set(texts)
        empty = texts.count(b"") - 1 if b"" in words else 0  # llama.cpp gives these texts of their own
        self._texts = texts
        without_own = (byte for byte in range(256) if b"<0x%02X>" % byte not in words)
        missing = tuple(byte for byte in without_own if byte > 127 or bytes([byte]) not in words)
        self._vocabulary = Vocabulary(len(texts), len(words) + empty, missing)

    def _tensor(self) -> TensorInfo:
        name = self._string("the name of a tensor", MAX_TENSOR_NAME_BYTES)
        n_dimensions = self._number("<I", f"the dimensions of {name!r}", MAX_DIMENSIONS)
        shape = tuple(self._number("<Q", f"a dimension of {name!r}") for _ in range(n_dimensions))
        kind = self._number("<I", f"the type of {name!r}")
        offset = self._number("<Q", f"the offset of {name!r}")
        if kind not in TENSOR_TYPES:
            raise _Malformed(f"the tensor {name!r} has the unknown type {kind}")
        storage = TENSOR_TYPES[kind]
        row = shape[0] if shape else 1
        if row % storage.block:
            needed = f"a multiple of {storage.block} ({storage.name})"
            raise _Malformed(f"a row of {name!r} has {row} elements, not {needed}")
        count = 1
        for size in shape:
            count *= size
            if count > _INT64_MAX:
                raise _Malformed(f"the tensor {name!r} has more elements than 64 bits can count")
        return TensorInfo(name, shape, storage.name, offset, count // storage.block * storage.size)

    def _check_vocabulary(self, metadata: Mapping[str, Scalar | ArrayValue]) -> None:
        """llama.cpp reads these arrays by pointer without checking type and length."""
        tokens = metadata.get(_TOKENS)
        if tokens is None:
            return
        if not isinstance(tokens, ArrayValue) or tokens.type != STRING:
            raise _Malformed(f"{_TOKENS} is not an array of strings")
        for key, kinds in ((_SCORES, (_FLOAT32,)), (_TOKEN_TYPES, (_INT32, _UINT32))):
            value = metadata.get(key)
            if value is None:
                continue
            if not isinstance(value, ArrayValue) or value.type not in kinds:
                raise _Malformed(f"{key} is not an array of {'floats' if key == _SCORES else 'integers'}")
            if value.length != tokens.length:
                raise _Malformed(f"{key} has {value.length} elements for {tokens.length} tokens")
        for token in self._byte_token_ids:
            if not _BYTE_TOKEN.match(self._texts[token]):
                raise _Malformed(f"token {token} is a byte token, but its text is not of the form <0xHH>")


def _alignment(metadata: Mapping[str, Scalar | ArrayValue]) -> int:
    value = metadata.get("general.alignment", 32)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _Malformed("general.alignment is not an integer")
    if value <= 0 or value & (value - 1) or value > MAX_ALIGNMENT:
        raise _Malformed(f"general.alignment is {value}, not a power of two up to {MAX_ALIGNMENT}")
    return value


def _pad(offset: int, alignment: int) -> int:
    return (offset + alignment - 1) // alignment * alignment


def _check_layout(tensors: tuple[TensorInfo, ...], data_offset: int, file_size: int, alignment: int) -> None:
    """Tensors must be contiguous except for padding, as ggml's reader requires."""
    names: set[str] = set()
    expected = 0
    for tensor in tensors:
        if tensor.name in names:
            raise _Malformed(f"the tensor {tensor.name!r} is there twice")
        names.add(tensor.name)
        if tensor.offset != expected:
            raise _Malformed(f"the tensor {tensor.name!r} is at offset {tensor.offset}, not at {expected}")
        missing = data_offset + tensor.offset + tensor.n_bytes - file_size
        if missing > 0:
            raise _Malformed(f"the file is incomplete: {tensor.name!r} ends {missing} bytes after its end")
        expected = _pad(tensor.offset + tensor.n_bytes, alignment)
    end = data_offset + expected
    if file_size > end + max(end, _MAX_TAIL):  # it would be read into memory with the weights
        raise _Malformed(f"it has {file_size - end} bytes after its last tensor")
