"""Messages of the process that decodes images: one reply per request, in order."""

from __future__ import annotations

from typing import Any

import msgspec

from jan_serve.errors import ProtocolError
from jan_serve.image_files.header import ImageHeader
from jan_serve.ipc.helper import HelperReply, framed


class DecodeImage(msgspec.Struct, frozen=True, kw_only=True):
    """data: the file. header: what it must decode to. size: width and height of the pixels that are wanted."""

    data: bytes
    header: ImageHeader
    size: tuple[int, int]


class DecodedImage(HelperReply, frozen=True, kw_only=True):
    """pixels: RGB8, rows from the top; or code and payload of an error of the `errors` tree."""

    pixels: bytes = b""
    code: str | None = None
    payload: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


_encoder = msgspec.msgpack.Encoder()
_requests: msgspec.msgpack.Decoder[DecodeImage] = msgspec.msgpack.Decoder(DecodeImage)
_replies: msgspec.msgpack.Decoder[DecodedImage] = msgspec.msgpack.Decoder(DecodedImage)


def frame(message: DecodeImage | DecodedImage) -> bytes:
    """Raises ProtocolError."""
    return framed(_encoder.encode(message))


def decode_request(body: bytes) -> DecodeImage:
    """Inverse of `frame`, without the header. Raises ProtocolError."""
    try:
        return _requests.decode(body)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ProtocolError(f"not an image to decode: {error}") from error


def decode_reply(body: bytes) -> DecodedImage:
    """Inverse of `frame`, without the header. Raises ProtocolError."""
    try:
        return _replies.decode(body)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ProtocolError(f"not a decoded image: {error}") from error
