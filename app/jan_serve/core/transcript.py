"""What an answer leaves for whoever goes on with it, and what it has from an earlier beginning.

A proxy asks for it by a header, for another server: the engine's events leave as bytes, with the first frame that is
made of them. Answers of the journal have one too, and streams that their clients take up again.
"""

from __future__ import annotations

import re
import secrets
import time
import uuid
from collections.abc import Callable
from contextvars import ContextVar
from enum import IntEnum
from hashlib import blake2b
from struct import Struct
from typing import Final

import msgspec

from jan_serve.errors import InvalidState

ASKED: Final = b"x-jan-serve-transcript"
"""Header of a request: see Asked."""
RECORDED: Final = b"x-jan-serve-records"
"""Header of an answer whose body is records: the model's weights, and in hex what keeps its client's connection alive,
if anything does."""
MAX_LOG_BYTES: Final = 4 << 20
MAX_PAYLOAD_BYTES: Final = 64 << 20
_ASKED: Final = re.compile(
    rb"(?P<identity>[0-9a-f]{32}) (?P<started>\d{1,15})"
    rb"(?: (?P<weights>[0-9a-f]{32}) (?P<log>\d{1,9}) (?P<shown>\d{1,9}))?"
)
_RECORDED: Final = re.compile(rb"(?P<weights>[0-9a-f]{32})(?: (?P<ping>(?:[0-9a-f]{2}){1,256}))?")
_EVENT: Final = Struct(">I")
_HEAD: Final = Struct(">BII")


class Asked(msgspec.Struct, frozen=True):
    """The header of a request for a transcript.

    identity: ids and seeds of the answer derive from it. started_s: Unix time of the request. weights: of the server
    that began the answer; empty if none did. log_bytes: the body begins with so many bytes of its events. shown: how
    many frames of its stream the client has.
    """

    identity: str
    started_s: int
    weights: str = ""
    log_bytes: int = 0
    shown: int = 0

    @property
    def header(self) -> bytes:
        first = f"{self.identity} {self.started_s}"
        return (f"{first} {self.weights} {self.log_bytes} {self.shown}" if self.weights else first).encode()


def read_asked(value: bytes) -> Asked:
    """Raises ValueError."""
    found = _ASKED.fullmatch(value)
    if found is None:
        raise ValueError("is not what a proxy sends")
    asked = Asked(found["identity"].decode(), int(found["started"]))
    if found["weights"] is None:
        return asked
    if int(found["log"]) > MAX_LOG_BYTES:
        raise ValueError(f"names more than {MAX_LOG_BYTES} bytes")
    return msgspec.structs.replace(
        asked, weights=found["weights"].decode(), log_bytes=int(found["log"]), shown=int(found["shown"])
    )


class Transcript:
    """The events of the engine in one answer, as bytes: those of an earlier server, and new ones. Event loop only."""

    def __init__(
        self, asked: Asked, log: bytes = b"", is_leaving: Callable[[], bool] = lambda: False
    ) -> None:
        """log: of the earlier server. is_leaving: whether this one is about to end. Raises InvalidState."""
        self.asked = asked
        self.is_leaving = is_leaving
        self.weights = ""
        self._past = _events(log)
        self._new: list[bytes] = []
        self._size = len(log)
        self._n_answers = self._n_drawn = 0

    def begin(self, weights: str) -> list[bytes]:
        """Begin an answer of the engine. Returns its events in the past, which it repeats. Raises InvalidState."""
        is_begun = bool(self.asked.weights or self._past)
        if is_begun and (not weights or weights != self.asked.weights):
            raise InvalidState(
                "The model's file is not the one that began the answer. Send the request again."
            )
        self.weights = weights
        self._n_answers += 1
        return self._past if self._n_answers == 1 else []

    @property
    def is_single(self) -> bool:
        """Whether it has one answer of the engine: the events of several are mixed."""
        return self._n_answers == 1

    @property
    def can_move(self) -> bool:
        """Whether another server can go on: with one answer, of weights that are known, and not too long."""
        return self.is_single and bool(self.weights) and self._size <= MAX_LOG_BYTES

    @property
    def has_new(self) -> bool:
        return bool(self._new)

    def add(self, event: bytes) -> None:
        self._size += _EVENT.size + len(event)
        self._new.append(_EVENT.pack(len(event)) + event)

    def take(self) -> bytes:
        """The events since the last call."""
        new = b"".join(self._new)
        self._new.clear()
        return new

    def hex(self, size: int) -> str:
        """The next bytes that derive from the identity."""
        self._n_drawn += 1
        return blake2b(f"{self.asked.identity} {self._n_drawn}".encode(), digest_size=size).hexdigest()


def _events(log: bytes) -> list[bytes]:
    found: list[bytes] = []
    start = 0
    while start < len(log):
        end = start + _EVENT.size
        if end <= len(log):
            start, end = end, end + _EVENT.unpack_from(log, start)[0]
        if end > len(log):
            raise InvalidState("The events of the answer end within one of them.")
        found.append(log[start:end])
        start = end
    return found


current: Final[ContextVar[Transcript | None]] = ContextVar("transcript", default=None)
"""The transcript of the current request, if anything may go on with its answer."""


def random_hex(size: int) -> str:
    """So many random bytes; in a request with a transcript, those of its identity."""
    transcript = current.get()
    return secrets.token_hex(size) if transcript is None else transcript.hex(size)


def random_uuid() -> uuid.UUID:
    """A UUID of the bytes of `random_hex`."""
    return uuid.UUID(hex=random_hex(16), version=4)


def started_s() -> int:
    """Unix time, in a request with a transcript that of its beginning."""
    transcript = current.get()
    return int(time.time()) if transcript is None else transcript.asked.started_s


class Kind(IntEnum):
    """Kind of a record. PING: keeps the connection alive. FAILURE: the answer is lost here, and this ends it unless
    another server goes on. STUCK: from here on no other server can. LEAVES: the server is about to end; another one may
    go on, and until then the stream does here."""

    FRAME = 0
    PING = 1
    FAILURE = 2
    STUCK = 3
    LEAVES = 4


class Record(msgspec.Struct, frozen=True):
    """A part of a stream, with the events from which it is made, as far as no earlier record has them."""

    kind: Kind
    log: bytes
    payload: bytes

    def encoded(self) -> bytes:
        return b"%b%b%b" % (_HEAD.pack(self.kind, len(self.log), len(self.payload)), self.log, self.payload)


def recorded_header(weights: str, ping: bytes) -> str:
    return f"{weights} {ping.hex()}" if ping else weights


def read_recorded(value: bytes) -> tuple[str, bytes]:
    """The weights and the ping. Raises ValueError."""
    found = _RECORDED.fullmatch(value)
    if found is None:
        raise ValueError("does not name its weights")
    return found["weights"].decode(), bytes.fromhex((found["ping"] or b"").decode())


class RecordReader:
    """Splits a stream into records. Holds no more than one record and one read."""

    def __init__(self) -> None:
        self._held = bytearray()

    @property
    def is_between(self) -> bool:
        """Whether all records are complete."""
        return not self._held

    def feed(self, data: bytes) -> list[Record]:
        """The records that are complete now. Raises ValueError for what is none."""
        self._held += data
        found: list[Record] = []
        start = 0
        while len(self._held) - start >= _HEAD.size:
            kind, n_log, n_payload = _HEAD.unpack_from(self._held, start)
            if n_log > MAX_LOG_BYTES or n_payload > MAX_PAYLOAD_BYTES or kind > max(Kind):
                raise ValueError("sent something that is no record")
            log = start + _HEAD.size
            payload, end = log + n_log, log + n_log + n_payload
            if len(self._held) < end:
                break
            found.append(Record(Kind(kind), bytes(self._held[log:payload]), bytes(self._held[payload:end])))
            start = end
        del self._held[:start]
        return found
