"""Requests with images or sound as frames of limited size, so that other frames pass between them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from jan_serve.core.media import AudioPiece, ImagePiece, MediaPiece, PromptPiece
from jan_serve.ipc.messages import EngineRequest, MediaData

PART_BYTES: Final = 1 << 20


def media_frames(request: EngineRequest) -> Iterator[MediaData | EngineRequest]:
    """The request after the data of its images and sounds, each of which is sent once."""
    media = (piece for piece in request.prompt if isinstance(piece, ImagePiece | AudioPiece))
    by_digest = {piece.digest: data for piece in media if (data := _data(piece))}
    for digest, data in by_digest.items():
        for start in range(0, len(data), PART_BYTES):
            yield MediaData(id=request.id, digest=digest, data=data[start : start + PART_BYTES])
    yield _replaced(request, dict.fromkeys(by_digest, b"")) if by_digest else request


def with_media(request: EngineRequest, by_digest: Mapping[str, bytes]) -> EngineRequest:
    """The request with its data again."""
    return _replaced(request, by_digest) if by_digest else request


def _data(piece: MediaPiece) -> bytes:
    return piece.pixels if isinstance(piece, ImagePiece) else piece.samples


def _replaced(request: EngineRequest, by_digest: Mapping[str, bytes]) -> EngineRequest:
    def with_data(piece: PromptPiece) -> PromptPiece:
        match piece:
            case ImagePiece() if piece.digest in by_digest:
                return msgspec.structs.replace(piece, pixels=by_digest[piece.digest])
            case AudioPiece() if piece.digest in by_digest:
                return msgspec.structs.replace(piece, samples=by_digest[piece.digest])
            case _:
                return piece

    return msgspec.structs.replace(request, prompt=tuple(map(with_data, request.prompt)))
