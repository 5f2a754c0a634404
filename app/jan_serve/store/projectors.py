"""Finds projectors (mmproj) by folder and name, and reads their headers.

`resolve` compares the widths of a model and its projector.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

import msgspec

from jan_serve.errors import InvalidModel
from jan_serve.store.files.file_errors import raise_if_exhausted
from jan_serve.store.gguf.gguf_header import GgufHeader, read_gguf_header
from jan_serve.store.gguf.header_checks import check_weights

_SUFFIX: Final = ".gguf"
_QUANTISATION: Final = re.compile(r"[-_.](?:bf16|f16|f32|fp16|(?:ud-)?i?q\d\w*|mxfp4\w*)\Z", re.IGNORECASE)
_PART: Final = re.compile(r"-\d{5}-of-\d{5}\Z")
_MARK: Final = re.compile(r"[-_.]?mmproj[-_.]?", re.IGNORECASE)
_UNNAMED: Final = frozenset({"", "model", "f16", "f32", "bf16", "q8_0"})
_PREFERRED: Final = ("f16", "q8_0", "bf16", "f32")


def is_projector_name(file: str) -> bool:
    return file.lower().endswith(_SUFFIX) and "mmproj" in file.lower()


def is_model_name(file: str) -> bool:
    """Whether a GGUF file is neither a projector nor an importance matrix, by its name."""
    return file.lower().endswith(_SUFFIX) and not is_projector_name(file) and "imatrix" not in file.lower()


def projectors_for(model: str, files: Sequence[str]) -> tuple[str, ...]:
    """The projectors of `projectors_among` for one model."""
    return projectors_among(files)(model)


def projectors_among(
    files: Sequence[str], unmarked: Collection[str] = ()
) -> Callable[[str], tuple[str, ...]]:
    """A function that gives the projectors which may be a model's own, the likeliest first.

    A projector names its model, or the models of the folder are all of one name. unmarked: projectors by their headers
    alone.
    """
    named = {file: _stem(file) for file in files if is_projector_name(file) or file in unmarked}
    if not named:
        return lambda _: ()
    models = {_stem(file) for file in files if file.lower().endswith(_SUFFIX) and file not in named}

    def of(model: str) -> tuple[str, ...]:
        wanted = _stem(model)
        ranked: list[tuple[int, int, str]] = []
        for file, name in named.items():
            if name in _UNNAMED:
                closeness = 2 if len(models) == 1 else None
            else:
                closeness = 0 if name == wanted else 1 if _extends(name, wanted) else None
            if closeness is not None:
                ranked.append((closeness, preference(file), file))
        return tuple(file for _, _, file in sorted(ranked))

    return of


def _stem(file: str) -> str:
    """The name without suffix, part, quantisation and the mark of projectors."""
    stem = _MARK.sub("-", _PART.sub("", file[: -len(_SUFFIX)])).strip("-_.")
    return _QUANTISATION.sub("", stem).casefold()


def _extends(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return long.startswith(f"{short}-")


def preference(file: str) -> int:
    """Rank of a projector's precision, by its name; the least is the best."""
    lower = file.lower()
    # `f16` is part of `bf16`.
    return next(
        (rank for rank, kind in enumerate(_PREFERRED) if re.search(rf"(?<![a-z]){kind}", lower)),
        len(_PREFERRED),
    )


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
        """Its bytes, and a quarter more for its activations; llama.cpp gives no figure."""
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
