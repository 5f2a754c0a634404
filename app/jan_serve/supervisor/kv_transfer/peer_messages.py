"""What two servers say to each other once they know that both have the key: one request, one answer, in turn."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from jan_serve.errors import PeerFailed

MAX_RECORD_BYTES: Final = 2 * 1024 * 1024
PART_BYTES: Final = 1024 * 1024


class Fetch(msgspec.Struct, frozen=True, tag="fetch"):
    """Send what is kept of this session. Answered by Found and then its bytes, or by Refused."""

    session: int


class Taken(msgspec.Struct, frozen=True, tag="taken"):
    """It is here and whole: forget it. Answered by Done."""

    session: int


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Answered by Done."""


class Found(msgspec.Struct, frozen=True, tag="found"):
    """So many bytes follow, as records of up to PART_BYTES."""

    total: int


class Done(msgspec.Struct, frozen=True, tag="done"):
    """As asked."""


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """An error of the `errors` tree."""

    code: str
    payload: dict[str, Any]


Question = Fetch | Taken | Ping
PeerAnswer = Found | Done | Refused

_encoder = msgspec.msgpack.Encoder()
_questions: msgspec.msgpack.Decoder[Question] = msgspec.msgpack.Decoder(Question)
_answers: msgspec.msgpack.Decoder[PeerAnswer] = msgspec.msgpack.Decoder(PeerAnswer)


def encode(message: Question | PeerAnswer) -> bytes:
    """As the body of a record."""
    return _encoder.encode(message)


def decode_question(body: bytes) -> Question:
    """Raises PeerFailed."""
    try:
        return _questions.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise PeerFailed(f"The other server asked something that is not known here ({error}).") from None


def decode_answer(body: bytes) -> PeerAnswer:
    """Raises PeerFailed."""
    try:
        return _answers.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise PeerFailed(f"The other server answered something that is not known here ({error}).") from None
