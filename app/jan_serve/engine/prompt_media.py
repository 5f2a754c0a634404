"""Where images and sound are in a prompt, and how cells and positions differ after them. Pure.

Their cells have placeholder ids below zero in place of tokens. Wherever prefixes are compared, equal placeholders mean
equal cells; nothing else may read them. A prefix that is shared ends at the border of a chunk.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_right
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from jan_serve.core.messages import MediaPiece
from jan_serve.engine.tokens import Tokens

Positions = npt.NDArray[np.int32]

_ID_BYTES = 4
_MIN_SHARED_CELLS = 9
"""So many placeholders of 31 bits hold a digest of 256."""


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
        before = self._before(index)
        return before if before is not None and index < before.end else None

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
    """The ids of a chunk's cells, below zero: the same for the same key, in every process.

    Too few cells for the whole digest get ids that no other prompt has.
    """
    size = _ID_BYTES * count
    data = hashlib.shake_256(key).digest(size) if count >= _MIN_SHARED_CELLS else os.urandom(size)
    return (np.frombuffer(data, "<u4") | np.uint32(1 << 31)).view(np.int32)
