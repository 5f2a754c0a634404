"""Finds projectors (mmproj) by folder and name, reads their headers, and keeps which ones a load found unusable.

`resolve` compares the widths of a model and its projector. Faults are kept so that no list promises sight; they are
valid while their file is unchanged.
"""

from __future__ import annotations

import contextlib
import re
import struct
import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

import msgspec

from jan_serve.errors import InvalidModel
from jan_serve.store.files.file_errors import raise_if_exhausted
from jan_serve.store.files.small_files import file_stamp, write_atomically
from jan_serve.store.gguf.gguf_header import GgufHeader, read_gguf_header
from jan_serve.store.gguf.header_checks import check_weights
from jan_serve.store.index import STATE_FOLDER

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
    """For a model of a folder with these files, the projectors that may be its own, the likeliest first.

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
                ranked.append((closeness, _preference(file), file))
        return tuple(file for _, _, file in sorted(ranked))

    return of


def _stem(file: str) -> str:
    """The name without suffix, part, quantisation and the mark of projectors."""
    stem = _MARK.sub("-", _PART.sub("", file[: -len(_SUFFIX)])).strip("-_.")
    return _QUANTISATION.sub("", stem).casefold()


def _extends(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return long.startswith(f"{short}-")


def _preference(file: str) -> int:
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


_MAX_BYTES: Final = 1 << 20


class _Fault(msgspec.Struct, frozen=True):
    """stamp: of the projector's file, as in `file_stamp`."""

    stamp: tuple[int, int]
    reason: str


_decoder: Final = msgspec.json.Decoder(dict[str, _Fault])


class ProjectorFaults:
    """The faults in one models folder, for all its processes. Thread-safe; every method blocks briefly on the disk."""

    def __init__(self, models_dir: Path) -> None:
        self._file = models_dir / STATE_FOLDER / "projector-faults.json"
        self._lock = threading.Lock()
        self._read_at: tuple[int, int] | None = None
        self._faults: dict[str, _Fault] = {}

    def reason(self, projector: Path) -> str:
        """Why the last load did not use this file; empty if it did, or if there was none."""
        with self._lock:
            self._read()
            fault = self._faults.get(str(projector))
        return fault.reason if fault is not None and fault.stamp == file_stamp(projector) else ""

    def note(self, projector: Path, reason: str) -> None:
        """What a load showed. Without write access, only this process knows it."""
        stamp = file_stamp(projector)
        with self._lock:
            self._read()
            before = self._faults.get(str(projector))
            if reason and stamp is not None:
                self._faults[str(projector)] = _Fault(stamp, reason)
            else:
                self._faults.pop(str(projector), None)
            if self._faults.get(str(projector)) == before:
                return
            with contextlib.suppress(OSError):
                write_atomically(self._file, msgspec.json.encode(self._faults))
                self._read_at = file_stamp(self._file)

    def _read(self) -> None:
        stamp = file_stamp(self._file)
        if stamp is None or stamp == self._read_at or stamp[1] > _MAX_BYTES:
            return
        self._read_at = stamp
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
            self._faults = _decoder.decode(self._file.read_bytes())
