"""Builds GGUF headers byte by byte, right or wrong, without any GGUF library. For tests of readers only."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

STRING, ARRAY, UINT32, INT32, FLOAT32, BOOL = 8, 9, 4, 5, 6, 7
Q4_0, F32, Q8_0 = 2, 0, 8

Value = str | int | bytes


def text(value: str | bytes) -> bytes:
    """A GGUF string: length and bytes."""
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def key(name: str, kind: int, value: bytes) -> bytes:
    """A key with the bytes of its value."""
    return text(name) + struct.pack("<I", kind) + value


def string_key(name: str, value: str) -> bytes:
    """A key with a string."""
    return key(name, STRING, text(value))


def uint_key(name: str, value: int) -> bytes:
    """A key with a 32-bit unsigned integer."""
    return key(name, UINT32, struct.pack("<I", value))


def strings_key(name: str, values: Sequence[str | bytes]) -> bytes:
    """A key with an array of strings."""
    return key(
        name, ARRAY, struct.pack("<IQ", STRING, len(values)) + b"".join(text(value) for value in values)
    )


def ints_key(name: str, values: Sequence[int], kind: int = INT32) -> bytes:
    """A key with an array of 32-bit integers (or what `kind` says of the same width)."""
    return key(name, ARRAY, struct.pack(f"<IQ{len(values)}i", kind, len(values), *values))


@dataclass(frozen=True)
class Tensor:
    """A tensor with its data. `offset` None: where the file has it."""

    name: str
    shape: tuple[int, ...] = (32,)
    type: int = Q8_0
    data: bytes = b"\0" * 34
    offset: int | None = None


@dataclass(frozen=True)
class GgufBytes:
    """A small valid model by default. Every count can be made to lie."""

    keys: Sequence[bytes] = ()
    tensors: Sequence[Tensor] = (Tensor("token_embd.weight"), Tensor("blk.0.ffn_up.weight"))
    architecture: str | None = "llama"
    n_layer: int = 1
    version: int = 3
    magic: bytes = b"GGUF"
    n_keys: int | None = None
    n_tensors: int | None = None
    alignment: int = 32
    extra: Mapping[str, str] = field(default_factory=dict[str, str])

    def build(self) -> bytes:
        """The file."""
        keys = list(self.keys)
        if self.architecture is not None:
            keys.insert(0, string_key("general.architecture", self.architecture))
            keys.append(uint_key(f"{self.architecture}.block_count", self.n_layer))
        keys += [string_key(name, value) for name, value in self.extra.items()]
        n_keys = len(keys) if self.n_keys is None else self.n_keys
        n_tensors = len(self.tensors) if self.n_tensors is None else self.n_tensors
        head = self.magic + struct.pack("<IQQ", self.version, n_tensors, n_keys) + b"".join(keys)
        data = b""
        for tensor in self.tensors:
            data += b"\0" * (-len(data) % self.alignment)
            offset = len(data) if tensor.offset is None else tensor.offset
            head += text(tensor.name) + struct.pack(
                f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape
            )
            head += struct.pack("<IQ", tensor.type, offset)
            data += tensor.data
        return head + b"\0" * (-len(head) % self.alignment) + data
