"""Messages of the process that reads the headers of model files: one reply per request, in order."""

from __future__ import annotations

from typing import Any

import msgspec

from jan_serve.core.models.listed_model import HeaderFacts
from jan_serve.errors import ProtocolError
from jan_serve.ipc.helper import HelperReply, framed


class ReadHeader(msgspec.Struct, frozen=True, kw_only=True):
    """path: of a model's first file."""

    path: str


class HeaderRead(HelperReply, frozen=True, kw_only=True):
    """facts; or code and payload of an error of the `errors` tree."""

    facts: HeaderFacts | None = None
    code: str | None = None
    payload: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


_encoder = msgspec.msgpack.Encoder()
_requests: msgspec.msgpack.Decoder[ReadHeader] = msgspec.msgpack.Decoder(ReadHeader)
_replies: msgspec.msgpack.Decoder[HeaderRead] = msgspec.msgpack.Decoder(HeaderRead)


def frame(message: ReadHeader | HeaderRead) -> bytes:
    """Raises ProtocolError."""
    return framed(_encoder.encode(message))


def decode_request(body: bytes) -> ReadHeader:
    """Inverse of `frame`, without the length. Raises ProtocolError."""
    try:
        return _requests.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ProtocolError(f"not a header to read: {error}") from error


def decode_reply(body: bytes) -> HeaderRead:
    """Inverse of `frame`, without the length. Raises ProtocolError."""
    try:
        return _replies.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ProtocolError(f"not the facts of a header: {error}") from error
