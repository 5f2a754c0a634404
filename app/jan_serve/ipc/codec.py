"""Frames of the worker pipe are a u32 little-endian length, then that many bytes of msgpack. Pure.

Neither end trusts the other: a length is checked against the limit before allocating, and a body that is no known
message is a ProtocolError. The format has no versions: both ends are the same build, which LoadModel.protocol
checks. The data of images and sound goes in small frames before its request, so that other frames pass between them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

import msgspec

from jan_serve.core.messages import AudioPiece, ImagePiece, MediaPiece, PromptPiece
from jan_serve.errors import ProtocolError
from jan_serve.ipc.messages import EngineRequest, MediaData, WorkerEvent, WorkerRequest

MAX_REQUEST_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of a frame to the worker. Token arrays of long contexts fit; images come in parts (`media_frames`)."""

MAX_EVENT_BYTES: Final = 256 * 1024 * 1024
"""Most bytes of a frame from the worker: a batch of embeddings, or log-probabilities of a whole prompt."""

_LENGTH: Final = struct.Struct("<I")
HEADER_BYTES: Final = _LENGTH.size

_encoder = msgspec.msgpack.Encoder()


def encode_request(request: WorkerRequest) -> bytes:
    """A frame with its header. Raises ProtocolError above the limit, or for values that msgpack cannot encode."""
    return _frame(request, MAX_REQUEST_BYTES)


def encode_event(event: WorkerEvent) -> bytes:
    """A frame with its header. Raises ProtocolError above the limit, or for values that msgpack cannot encode."""
    return _frame(event, MAX_EVENT_BYTES)


def decode_length(header: bytes, limit: int) -> int:
    """The body length in a header of HEADER_BYTES. Raises ProtocolError above `limit`."""
    if len(header) != HEADER_BYTES:
        raise ProtocolError(f"the pipe ended inside a frame header ({len(header)} of {HEADER_BYTES} bytes)")
    length: int = _LENGTH.unpack(header)[0]
    if length > limit:
        raise ProtocolError(f"a frame announces {length} bytes; the limit is {limit}")
    return length


def decode_request(body: bytes) -> WorkerRequest:
    """Inverse of `encode_request`, without the header. Raises ProtocolError."""
    try:
        return _request_decoder().decode(body)
    except _BAD_BODY as error:
        raise ProtocolError(f"a frame is not a known request: {error}") from error


def decode_event(body: bytes) -> WorkerEvent:
    """Inverse of `encode_event`, without the header. Raises ProtocolError."""
    try:
        return _event_decoder().decode(body)
    except _BAD_BODY as error:
        raise ProtocolError(f"a frame is not a known event: {error}") from error


# Made on use: each end needs one of them, and a decoder of so many messages takes milliseconds.
@cache
def _request_decoder() -> msgspec.msgpack.Decoder[WorkerRequest]:
    return msgspec.msgpack.Decoder(WorkerRequest)


@cache
def _event_decoder() -> msgspec.msgpack.Decoder[WorkerEvent]:
    return msgspec.msgpack.Decoder(WorkerEvent)


# MsgspecError: not msgpack, or none of the messages. UnicodeError: not UTF-8. RecursionError: too deep.
_BAD_BODY = (msgspec.MsgspecError, UnicodeError, RecursionError)


def _frame(message: WorkerRequest | WorkerEvent, limit: int) -> bytes:
    try:
        body = _encoder.encode(message)
    except (UnicodeEncodeError, OverflowError, RecursionError) as error:
        # Values from outside: a lone surrogate, an integer of more than 64 bits, endless nesting.
        raise ProtocolError(f"a value cannot be written to the worker pipe: {error}") from error
    if len(body) > limit:
        reason = f"a message of {len(body)} bytes is too large for the worker pipe; the limit is {limit}"
        raise ProtocolError(reason)
    return _LENGTH.pack(len(body)) + body


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
