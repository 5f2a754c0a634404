"""Where images and sound are in a prompt, and how cells and positions differ after them. Pure.

Their cells have placeholder ids below zero in place of tokens. Wherever prefixes are compared, equal placeholders mean
equal cells; nothing else may read them. A prefix that is shared ends at the border of a chunk.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from jan_serve.core.messages import ImagePiece, MediaPiece
from jan_serve.engine.tokens import Tokens
from jan_serve.errors import InvalidRequest, UnsupportedContent

if TYPE_CHECKING:
    from jan_serve.engine.llama.projector import MediaPart, Projector

Positions = npt.NDArray[np.int32]

_ID_BYTES = 4
_MIN_SHARED_CELLS = 9  # so many placeholders of 31 bits hold a digest of 256


class MediaChunk(msgspec.Struct, frozen=True, eq=False):
    """A run of cells of an image or a sound.

    start, end: indices of its cells in the prompt. position: of its start; next_position: of the token after it.
    positions: of its cells; a row for each component. key: identifies its embeddings. piece, number: its part of what.
    is_whole: all its cells must be in one batch, since they attend to each other.
    """

    start: int
    end: int
    position: int
    next_position: int
    positions: Positions
    key: bytes
    piece: MediaPiece
    number: int
    is_whole: bool = False

    @property
    def num_cells(self) -> int:
        return self.end - self.start


class PromptMedia:
    """The chunks of a prompt, in order."""

    __slots__ = ("_starts", "chunks")

    def __init__(self, chunks: Sequence[MediaChunk] = ()) -> None:
        self.chunks = tuple(chunks)
        self._starts = [chunk.start for chunk in chunks]

    def __bool__(self) -> bool:
        return bool(self.chunks)

    @property
    def surplus(self) -> int:
        """Cells minus positions of all chunks."""
        if not self.chunks:
            return 0
        last = self.chunks[-1]
        return last.end - last.next_position

    def chunk_at(self, index: int) -> MediaChunk | None:
        """The chunk with the cell `index`; None if that is a token's."""
        chunk = self._before(index)
        return chunk if chunk is not None and index < chunk.end else None

    def chunks_from(self, index: int, count: int) -> tuple[MediaChunk, ...]:
        """The next `count` chunks that end after `index`."""
        first = bisect_right(self._starts, index)
        if first and self.chunks[first - 1].end > index:
            first -= 1
        return self.chunks[first : first + count]

    def position(self, index: int) -> int:
        """The position of a token by its index, or of the chunk that begins or continues there."""
        chunk = self._before(index)
        if chunk is None:
            return index
        return chunk.position if index < chunk.end else chunk.next_position + index - chunk.end

    def cut(self, length: int) -> int:
        """The longest prefix of at most `length` tokens and cells without part of a chunk."""
        chunk = self._before(length)
        return chunk.start if chunk is not None and length < chunk.end else length

    def next_border(self, index: int) -> int | None:
        """Where the next chunk begins, or the one at `index` ends; None after the last one."""
        chunk = self.chunk_at(index)
        if chunk is not None:
            return chunk.end
        following = bisect_right(self._starts, index)
        return self._starts[following] if following < len(self._starts) else None

    def _before(self, index: int) -> MediaChunk | None:
        found = bisect_right(self._starts, index)
        return self.chunks[found - 1] if found else None


NO_MEDIA = PromptMedia()


def chunk_key(projector: str, piece_key: str, number: int) -> bytes:
    """Identifies the embeddings of a chunk. projector: a digest of its file. piece_key: of what it encodes."""
    return hashlib.sha256(f"{projector}\0{piece_key}\0{number}".encode()).digest()


def placeholders(key: bytes, count: int) -> Tokens:
    """The ids of a chunk's cells, below zero: the same for the same key, in every process. Too few cells for the whole
    digest get ids that no other prompt has."""
    size = _ID_BYTES * count
    data = hashlib.shake_256(key).digest(size) if count >= _MIN_SHARED_CELLS else os.urandom(size)
    return (np.frombuffer(data, "<u4") | np.uint32(1 << 31)).view(np.int32)


PromptPart = list[int] | tuple[MediaPiece, "MediaPart"]  # tokens, or a media part of a piece of the prompt


class MediaLayout:
    """What a model's projector makes of images and sound. Any thread. projector: None for a model without one."""

    def __init__(self, projector: Projector | None, identity: str = "", *, most_together: int = 0) -> None:
        """identity: a digest of the projector's file. most_together: cells that may attend to each other."""
        self._projector = projector
        self._identity = identity
        self._most_together = most_together

    def parts(self, piece: MediaPiece, param: str) -> list[PromptPart]:
        """The parts of one piece. Raises UnsupportedContent, InvalidRequest."""
        projector, is_image, fault = self._projector, isinstance(piece, ImagePiece), ""
        if projector is None or not (projector.sees if is_image else projector.hears):
            verb = "see" if is_image else "hear"
            raise UnsupportedContent(f"{param}: this model cannot {verb}", param=param)
        longest = projector.longest_sound
        if isinstance(piece, ImagePiece):
            if min(piece.width, piece.height) < 1:
                fault = "an image has no pixels"
        elif piece.frames < 1:
            fault = "a sound has no samples"
        elif longest is not None and piece.frames > longest:
            lasts_s, most_s = piece.frames / projector.audio_rate, longest / projector.audio_rate
            fault = f"the sound lasts {lasts_s:.0f} s, and this model hears {most_s:.0f} s"
        layout = () if fault else projector.layout(piece)
        largest = max((part.num_cells for part in layout if not isinstance(part, tuple)), default=0)
        if not projector.is_causal and largest > self._most_together:
            fault = f"a part of it takes {largest} tokens at once, and {self._most_together} is the most"
        if fault:
            raise InvalidRequest(f"{param}: {fault}", param=param)
        return [list(part) if isinstance(part, tuple) else (piece, part) for part in layout]

    def assemble(self, parts: Iterable[PromptPart], salt: str = "") -> tuple[Tokens, PromptMedia]:
        """The ids of a whole prompt with placeholders, and its chunks.

        salt: embeddings are shared among prompts with the same salt only.
        """
        ids: list[Tokens] = []
        chunks: list[MediaChunk] = []
        length = position = 0
        for part in parts:
            if isinstance(part, tuple):
                chunk = self._chunk(*part, length, position, salt)
                chunks.append(chunk)
                ids.append(placeholders(chunk.key, chunk.num_cells))
                length, position = chunk.end, chunk.next_position
            else:
                ids.append(np.array(part, np.int32))
                length += len(part)
                position += len(part)
        return np.concatenate(ids) if ids else np.empty(0, np.int32), PromptMedia(chunks)

    def _chunk(self, piece: MediaPiece, part: MediaPart, start: int, position: int, salt: str) -> MediaChunk:
        shape = (
            f"{piece.width}x{piece.height}" if isinstance(piece, ImagePiece) else f"{piece.frames} samples"
        )
        what = "\0".join((piece.digest, shape, *filter(None, (salt,))))
        return MediaChunk(
            start=start,
            end=start + part.num_cells,
            position=position,
            next_position=position + part.num_positions,
            positions=part.offsets + part.steps * position,
            key=chunk_key(self._identity, what, part.number),
            piece=piece,
            number=part.number,
            is_whole=self._projector is not None and not self._projector.is_causal,
        )
