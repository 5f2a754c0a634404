"""Facts of a multimodal projector (mmproj) from its header: what it reads, and the width of the models it fits."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

import msgspec

from jan_serve.errors import InvalidModel
from jan_serve.store.files.exhaustion import raise_if_exhausted
from jan_serve.store.gguf.gguf_header import GgufHeader, read_gguf_header
from jan_serve.store.gguf.model_checks import check_weights

_STRING: Final = 8  # of gguf's types of values

_OUTPUTS: Final = (
    ("mm.2.weight", 1),
    ("mm.input_projection.weight", 0),
    ("mm.model.fc.weight", 1),
    ("mm.model.mlp.3.weight", 1),
    ("mm.0.weight", 1),
)
"""The last tensors of common projectors, and the dimension that is the model's width."""

_MARKS: Final = tuple(
    key + struct.pack("<IQ", _STRING, len(value)) + value
    for key, value in ((b"general.type", b"mmproj"), (b"general.architecture", b"clip"))
)
"""Keys with their values, as a GGUF file has them."""


_FIRST_BYTES: Final = 4096


class ProjectorFile(msgspec.Struct, frozen=True):
    """senses: of vision and audio. width: embedding length of its models; None if its kind is unknown here."""

    path: Path
    senses: tuple[str, ...]
    width: int | None
    file_bytes: int

    def fits(self, n_embd: int) -> bool:
        return self.width is None or self.width == n_embd

    @property
    def memory_bytes(self) -> int:
        """With a quarter more for its activations; llama.cpp gives no figure."""
        return self.file_bytes * 5 // 4


def is_projector_file(path: Path) -> bool:
    """Whether the first keys of a GGUF file say so. Blocks briefly on the disk. False if it cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(_FIRST_BYTES)
    except OSError as error:
        raise_if_exhausted(error)
        return False
    return head.startswith(b"GGUF") and any(mark in head for mark in _MARKS)


def read_projector(path: Path) -> ProjectorFile:
    """Read the header. Blocks on the disk. Raises InvalidModel, also for a file that is no projector."""
    header = read_gguf_header(path)
    if header.text("general.architecture") != "clip":
        raise InvalidModel(f"{path.name} is no multimodal projector")
    check_weights(header)
    senses = (("vision", "clip.has_vision_encoder"), ("audio", "clip.has_audio_encoder"))
    return ProjectorFile(
        path=path,
        senses=tuple(sense for sense, key in senses if header.metadata.get(key) is True),
        width=_width(header),
        file_bytes=header.file_size,
    )


def _width(header: GgufHeader) -> int | None:
    shapes = {tensor.name: tensor.shape for tensor in header.tensors}
    for name, dimension in _OUTPUTS:
        shape = shapes.get(name, ())
        if dimension < len(shape):
            return shape[dimension]
    return None
