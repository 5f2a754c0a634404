"""Messages between linked servers: one request, then its answer."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from jan_serve.errors import PeerFailed

MAX_RECORD_BYTES: Final = 2 * 1024 * 1024
PART_BYTES: Final = 1024 * 1024


class Fetch(msgspec.Struct, frozen=True, tag="fetch"):
    """Send the state of this session. Answer: Found and then its bytes, or Refused."""

    session: int


class Release(msgspec.Struct, frozen=True, tag="taken"):
    """The state has arrived: drop it. Answer: Done."""

    session: int


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Answer: Done."""


class Found(msgspec.Struct, frozen=True, tag="found"):
    """total: bytes that follow, in records of up to PART_BYTES."""

    total: int


class Done(msgspec.Struct, frozen=True, tag="done"):
    """Answer to a request that succeeded."""


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """An error of the `errors` tree."""

    code: str
    payload: dict[str, Any]


PeerRequest = Fetch | Release | Ping
PeerAnswer = Found | Done | Refused

_encoder = msgspec.msgpack.Encoder()
_requests: msgspec.msgpack.Decoder[PeerRequest] = msgspec.msgpack.Decoder(PeerRequest)
_answers: msgspec.msgpack.Decoder[PeerAnswer] = msgspec.msgpack.Decoder(PeerAnswer)


def encode(message: PeerRequest | PeerAnswer) -> bytes:
    """The body of a record."""
    return _encoder.encode(message)


def decode_request(body: bytes) -> PeerRequest:
    """Raises PeerFailed."""
    try:
        return _requests.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise PeerFailed(f"The other server asked something that is not known here ({error}).") from None


def decode_answer(body: bytes) -> PeerAnswer:
    """Raises PeerFailed."""
    try:
        return _answers.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise PeerFailed(f"The other server answered something that is not known here ({error}).") from None
