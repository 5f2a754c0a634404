"""Lays prompts with images and sound out: tokens, placeholders, and where their chunks are."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from jan_serve.core.messages import AudioPiece, ImagePiece, MediaPiece
from jan_serve.engine.llama.projector import MarkupPart, MediaPart, Projector
from jan_serve.engine.prompt_media import MediaChunk, PromptMedia, chunk_key, placeholders
from jan_serve.engine.tokens import Tokens
from jan_serve.errors import InvalidRequest, UnsupportedContent


class LaidOutPart(msgspec.Struct, frozen=True):
    """A media part of a piece of the prompt."""

    piece: MediaPiece
    part: MediaPart


PromptPart = list[int] | LaidOutPart


class MediaLayout:
    """What a model's projector makes of images and sound. Any thread. projector: None for a model without one."""

    def __init__(self, projector: Projector | None, identity: str = "", *, most_together: int = 0) -> None:
        """identity: a digest of the projector's file. most_together: cells that may attend to each other."""
        self._most_together = most_together
        self._projector = projector
        self._identity = identity

    def parts(self, piece: MediaPiece, param: str) -> list[PromptPart]:
        """The parts of one piece. Raises UnsupportedContent, InvalidRequest."""
        projector = self._projector
        sees = projector is not None and projector.sees
        hears = projector is not None and projector.hears
        if isinstance(piece, ImagePiece) and (projector is None or not sees):
            raise UnsupportedContent(f"{param}: this model cannot see", param=param)
        if isinstance(piece, AudioPiece) and (projector is None or not hears):
            raise UnsupportedContent(f"{param}: this model cannot hear", param=param)
        assert projector is not None
        if isinstance(piece, ImagePiece) and min(piece.width, piece.height) < 1:
            raise InvalidRequest(f"{param}: an image has no pixels", param=param)
        if isinstance(piece, AudioPiece) and piece.frames < 1:
            raise InvalidRequest(f"{param}: a sound has no samples", param=param)
        longest = projector.longest_sound
        if isinstance(piece, AudioPiece) and longest is not None and piece.frames > longest:
            rate = projector.audio_rate
            raise InvalidRequest(
                f"{param}: the sound lasts {piece.frames / rate:.0f} s, and this model hears {longest / rate:.0f} s",
                param=param,
            )
        layout = projector.layout(piece)
        largest = max((part.num_cells for part in layout if isinstance(part, MediaPart)), default=0)
        if not projector.is_causal and largest > self._most_together:
            raise InvalidRequest(
                f"{param}: a part of it takes {largest} tokens at once, and {self._most_together} is the most",
                param=param,
            )
        return [
            list(part.tokens) if isinstance(part, MarkupPart) else LaidOutPart(piece, part) for part in layout
        ]

    def assemble(self, parts: Iterable[PromptPart], salt: str = "") -> tuple[Tokens, PromptMedia]:
        """The ids of a whole prompt with placeholders, and its chunks.

        salt: embeddings are shared among prompts with the same salt only.
        """
        ids: list[Tokens] = []
        chunks: list[MediaChunk] = []
        length = position = 0
        for part in parts:
            if isinstance(part, LaidOutPart):
                chunk = self._chunk(part, length, position, salt)
                chunks.append(chunk)
                ids.append(placeholders(chunk.key, chunk.num_cells))
                length, position = chunk.end, chunk.next_position
            else:
                ids.append(np.array(part, np.int32))
                length += len(part)
                position += len(part)
        return np.concatenate(ids) if ids else np.empty(0, np.int32), PromptMedia(chunks)

    def _chunk(self, laid_out: LaidOutPart, start: int, position: int, salt: str) -> MediaChunk:
        piece, part = laid_out.piece, laid_out.part
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
