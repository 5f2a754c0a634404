"""A Projector (mmproj file) turns images and sound into embeddings for the text model. It wraps libmtmd."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from jan_serve.core.messages import AudioPiece, ImagePiece, MediaPiece
from jan_serve.engine.llama import backend, bindings
from jan_serve.engine.llama.bindings import ggml_function
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.errors import EngineFailure, InvalidModel

_TYPE_KEYS: Final = (b"clip.audio.projector_type", b"clip.projector_type")
_CONFORMER: Final = b"lfm2a"
_POSITIONS: Final = b"a.position_embd.weight"
_SAMPLES_PER_POSITION: Final = 320
"""Two frames of 10 ms, at the 16,000 samples a second of this encoder, which asserts as many rows of its table."""
_STRING: Final = 8  # enum gguf_type
_pointer_to: Any = ctypes.POINTER
_lib: Any = bindings.mtmd


class _Params(ctypes.Structure):
    """Layout of gguf_init_params."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", _pointer_to(ctypes.c_void_p)))


def longest_sound(path: str) -> int | None:
    """Samples. None where libmtmd reads a sound in pieces. Blocks for reading the header."""
    tensors = ctypes.c_void_p()
    init = ggml_function("gguf_init_from_file", ctypes.c_void_p, [ctypes.c_char_p, _Params])
    file = init(path.encode("utf-8"), _Params(True, ctypes.pointer(tensors)))
    if not file:
        return None
    try:
        if _CONFORMER not in (_file_text(file, key) for key in _TYPE_KEYS):
            return None
        get = ggml_function("ggml_get_tensor", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p])
        count_rows = ggml_function("ggml_nrows", ctypes.c_int64, [ctypes.c_void_p])
        table = get(tensors, _POSITIONS)
        return _SAMPLES_PER_POSITION * int(count_rows(table)) if table else None
    finally:
        ggml_function("gguf_free", None, [ctypes.c_void_p])(file)
        ggml_function("ggml_free", None, [ctypes.c_void_p])(tensors)


def _file_text(file: int, key: bytes) -> bytes | None:
    number = ggml_function("gguf_find_key", ctypes.c_int64, [ctypes.c_void_p, ctypes.c_char_p])(file, key)
    of_key = [ctypes.c_void_p, ctypes.c_int64]
    if number < 0 or ggml_function("gguf_get_kv_type", ctypes.c_int, of_key)(file, number) != _STRING:
        return None
    text: bytes = ggml_function("gguf_get_val_str", ctypes.c_char_p, of_key)(file, number)
    return text


Embeddings = npt.NDArray[np.float32]  # a row for each cell, as wide as the text model's input
Positions = npt.NDArray[np.int32]
"""A row for each component (one, or time, height, width and an unused one), a column for each cell."""

_TEXT = 0  # enum mtmd_input_chunk_type
_KEPT_LAYOUTS = 256
_LARGEST_SIDE = 4096
_PIECE_SECONDS = 30
"""Encoders read a sound in pieces of this length or a multiple of it, so the last piece may be short."""
_PIECES_PER_SECOND = 10
"""The shortest piece is a second's part by this. Some encoders assert more than one sample, others 20 ms, or divide by
the number of frames of 10 ms."""


def heard_frames(frames: int, rate: int) -> int:
    """Samples of a sound whose last piece is not too short, at `rate` samples a second."""
    whole, rest = divmod(frames, _PIECE_SECONDS * rate)
    if whole and not rest:
        return frames
    return whole * _PIECE_SECONDS * rate + max(rest, rate // _PIECES_PER_SECOND)


class MediaPart(msgspec.Struct, frozen=True, eq=False):
    """Cells that hold embeddings. number: among the media parts of its piece.

    num_positions: by how much the position advances. offsets, steps: its cells are at offsets + steps * position.
    """

    number: int
    num_cells: int
    num_positions: int
    offsets: Positions
    steps: Positions


Layout = tuple[tuple[int, ...] | MediaPart, ...]
"""Media parts, and the tokens that the model expects around and between them."""


class Projector:
    """Wraps `mtmd_context`. Layouts may be asked for by any thread; one thread at a time encodes."""

    def __init__(
        self, path: str, model: LlamaModel, *, threads: int, use_gpu: bool, device: str | None = None
    ) -> None:
        """Load the file; blocks. Raises InvalidModel if libmtmd rejects it, or if it is for another text model."""
        params = _lib.mtmd_context_params_default()
        params.use_gpu = use_gpu
        params.n_threads = threads
        params.print_timings = False
        # Reserves its compute buffers now: a lack of memory shows at the load.
        params.warmup = True
        if use_gpu and device is not None:
            params.device = backend.device_pointer(device)
        backend.log_to(_lib.mtmd_helper_log_set)
        with backend.last_errors() as errors:
            pointer = _lib.mtmd_init_from_file(path.encode("utf-8"), model.pointer, params)
        if not pointer:
            raise InvalidModel(f"its projector {Path(path).name} cannot be used: {_reason(path, errors)}")
        self.pointer: Any = pointer
        self._width = model.n_embd_inp
        self.on_cpu = not use_gpu
        self.sees = bool(_lib.mtmd_support_vision(pointer))
        self.hears = bool(_lib.mtmd_support_audio(pointer))
        self.has_mrope = bool(_lib.mtmd_decode_use_mrope(pointer))
        self.is_causal = not _lib.mtmd_decode_use_non_causal(pointer, None)
        self.longest_sound = longest_sound(path) if self.hears else None
        self.audio_rate = int(_lib.mtmd_get_audio_sample_rate(pointer)) if self.hears else 0
        self._layout = lru_cache(_KEPT_LAYOUTS)(self._lay_out)

    def close(self) -> None:
        """Free it. Nothing may use it any more."""
        if self.pointer:
            _lib.mtmd_free(self.pointer)
            self.pointer = None

    @property
    def modalities(self) -> tuple[str, ...]:
        return ("vision",) * self.sees + ("audio",) * self.hears

    def largest_part(self) -> int:
        """Cells of the largest part of an image, for images of usual shapes."""
        sides = ((_LARGEST_SIDE, _LARGEST_SIDE), (_LARGEST_SIDE, 512), (512, _LARGEST_SIDE))
        pieces = [ImagePiece(width=width, height=height, digest="") for width, height in sides if self.sees]
        parts = (part for piece in pieces for part in self._layout(piece))
        return max((part.num_cells for part in parts if isinstance(part, MediaPart)), default=0)

    def layout(self, piece: MediaPiece) -> Layout:
        """What an image or a sound is in a prompt; neither needs its pixels or samples. Raises EngineFailure."""
        if isinstance(piece, ImagePiece):
            return self._layout(ImagePiece(width=piece.width, height=piece.height, digest=""))
        return self._layout(AudioPiece(digest="", frames=piece.frames))

    @contextmanager
    def opened(self, piece: MediaPiece) -> Generator[Callable[[int], Embeddings]]:
        """A function that encodes the media part of a number (`mtmd_encode_chunk`). It blocks, with the GIL released.
        Both raise EngineFailure."""
        with self._chunks(piece) as chunks:
            media = [chunk for chunk in chunks if _lib.mtmd_input_chunk_get_type(chunk) != _TEXT]

            def encode(number: int) -> Embeddings:
                code = int(_lib.mtmd_encode_chunk(self.pointer, media[number]))
                if code != 0:
                    raise EngineFailure(f"llama.cpp could not encode an image or a sound (code {code})")
                shape = (int(_lib.mtmd_input_chunk_get_n_tokens(media[number])), self._width)
                return np.ctypeslib.as_array(_lib.mtmd_get_output_embd(self.pointer), shape=shape).copy()

            yield encode

    @contextmanager
    def _chunks(self, piece: MediaPiece) -> Generator[list[Any]]:
        bitmap = _bitmap(piece) if isinstance(piece, ImagePiece) else _sound(piece, self.audio_rate)
        chunks = _lib.mtmd_input_chunks_init()
        try:
            part = _lib.mtmd_input_part(None, bitmap)
            parts = (_pointer_to(_lib.mtmd_input_part) * 1)(ctypes.pointer(part))
            code = int(_lib.mtmd_tokenize_from_parts(self.pointer, chunks, parts, 1, False))
            if code != 0:
                raise EngineFailure(f"llama.cpp could not prepare an image or a sound (code {code})")
            yield [
                _lib.mtmd_input_chunks_get(chunks, i) for i in range(int(_lib.mtmd_input_chunks_size(chunks)))
            ]
        finally:
            _lib.mtmd_input_chunks_free(chunks)
            _lib.mtmd_bitmap_free(bitmap)

    def _lay_out(self, piece: MediaPiece) -> Layout:
        parts: list[tuple[int, ...] | MediaPart] = []
        number = 0
        with self._chunks(piece) as chunks:
            for chunk in chunks:
                if _lib.mtmd_input_chunk_get_type(chunk) == _TEXT:
                    size = ctypes.c_size_t()
                    tokens = _lib.mtmd_input_chunk_get_tokens_text(chunk, ctypes.byref(size))
                    parts.append(tuple(tokens[i] for i in range(size.value)))
                else:
                    count, advance = _lib.mtmd_input_chunk_get_n_tokens, _lib.mtmd_input_chunk_get_n_pos
                    where = self._positions(chunk, int(count(chunk)))
                    parts.append(MediaPart(number, int(count(chunk)), int(advance(chunk)), *where))
                    number += 1
        return tuple(parts)

    def _positions(self, chunk: Any, count: int) -> tuple[Positions, Positions]:
        """Offsets and steps; see MediaPart."""
        along = np.arange(count, dtype=np.int32)[None]
        image = _lib.mtmd_input_chunk_get_tokens_image(chunk) if self.has_mrope else None
        if not image:
            components = 4 if self.has_mrope else 1
            return np.repeat(along, components, axis=0), np.ones((components, 1), np.int32)
        at_zero = np.array([_position(image, 0, i) for i in range(count)], np.int32).T
        at_one = np.array(_position(image, 1, 0), np.int32)
        return np.ascontiguousarray(at_zero), (at_one - at_zero[:, 0])[:, None]


def _reason(path: str, errors: Sequence[str]) -> str:
    """Why libmtmd rejects a file, from its log."""
    for line in errors:
        if found := re.search(r"text model \(n_embd = (\d+)\) and mmproj \(n_embd = (\d+)\)", line):
            return f"it is for models of the width {found[2]}, and this one has {found[1]}"
        reason = line.partition(f"failed to load model '{path}': ")[2].partition(": ")[2]
        if reason and path not in reason:
            return reason
    return "it is damaged, or of a kind that llama.cpp does not know"


def _position(image: Any, start: int, cell: int) -> tuple[int, int, int, int]:
    found = _lib.mtmd_image_tokens_get_decoder_pos(image, start, cell)
    return found.t, found.y, found.x, found.z


def _bitmap(piece: ImagePiece) -> Any:
    """A `mtmd_bitmap`, which copies the pixels."""
    if piece.pixels and len(piece.pixels) != 3 * piece.width * piece.height:
        raise EngineFailure("an image does not have as many pixels as its size says")
    data = ctypes.cast(ctypes.c_char_p(piece.pixels), _pointer_to(ctypes.c_uint8)) if piece.pixels else None
    return _named(_lib.mtmd_bitmap_init(piece.width, piece.height, data), piece)


def _sound(piece: AudioPiece, rate: int) -> Any:
    """A `mtmd_bitmap`, which copies the samples, and silence where they are too few."""
    if piece.samples and len(piece.samples) != 4 * piece.frames:
        raise EngineFailure("a sound does not have as many samples as it says")
    frames = heard_frames(piece.frames, rate)
    samples = piece.samples and piece.samples.ljust(4 * frames, b"\0")
    data = ctypes.cast(ctypes.c_char_p(samples), _pointer_to(ctypes.c_float)) if samples else None
    return _named(_lib.mtmd_bitmap_init_from_audio(frames, data), piece)


def _named(bitmap: Any, piece: MediaPiece) -> Any:
    _lib.mtmd_bitmap_set_id(bitmap, piece.digest.encode())
    return bitmap
