"""Messages of the process that decodes images and sound: one reply per request, in order."""

from __future__ import annotations

from typing import Any

import msgspec

from jan_serve.audio_files.header import AudioHeader
from jan_serve.errors import ProtocolError
from jan_serve.image_files.header import ImageHeader
from jan_serve.ipc.helper import HelperReply, framed


class DecodeImage(msgspec.Struct, frozen=True, kw_only=True, tag="image"):
    """data: the file. header: what it must decode to. size: width and height of the pixels that are wanted."""

    data: bytes
    header: ImageHeader
    size: tuple[int, int]


class DecodeAudio(msgspec.Struct, frozen=True, kw_only=True, tag="audio"):
    """data: the file, as its header says. rate: samples a second that are wanted."""

    data: bytes
    header: AudioHeader
    rate: int


DecodeMedia = DecodeImage | DecodeAudio


class DecodedMedia(HelperReply, frozen=True, kw_only=True):
    """data: pixels (RGB8, rows from the top) or samples (float32, mono); or code and payload of an error."""

    data: bytes = b""
    code: str | None = None
    payload: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


_encoder = msgspec.msgpack.Encoder()
_requests: msgspec.msgpack.Decoder[DecodeMedia] = msgspec.msgpack.Decoder(DecodeMedia)
_replies: msgspec.msgpack.Decoder[DecodedMedia] = msgspec.msgpack.Decoder(DecodedMedia)


def frame(message: DecodeMedia | DecodedMedia) -> bytes:
    """Raises ProtocolError."""
    return framed(_encoder.encode(message))


def decode_request(body: bytes) -> DecodeMedia:
    """Inverse of `frame`, without the header. Raises ProtocolError."""
    try:
        return _requests.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ProtocolError(f"not a file to decode: {error}") from error


def decode_reply(body: bytes) -> DecodedMedia:
    """Inverse of `frame`, without the header. Raises ProtocolError."""
    try:
        return _replies.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ProtocolError(f"not a decoded file: {error}") from error
