"""What a node has written of a stream, as it tells in its records: enough for another node to go on.

Nothing of it is trusted: sizes have limits, and the events are the other node's to check.
"""

from __future__ import annotations

import msgspec

from jan_serve.core.transcript import MAX_LOG_BYTES, RECORDED, Asked, Kind, RecordReader, read_recorded
from jan_serve.proxy.upstream.connection import AnswerHead, Failure, NodeFailure

_MAX_KEPT_BYTES = 256 << 20
MAX_MOVES = 100
"""Most moves of one stream: nodes that always die after a frame, and never end it, are left in the end."""


class KeptBytes:
    """The events of all streams that are kept in memory. Beyond the limit, streams are passed on and cannot move."""

    def __init__(self, limit: int = _MAX_KEPT_BYTES) -> None:
        self.left = limit

    def take(self, size: int) -> bool:
        if size > self.left:
            return False
        self.left -= size
        return True

    def give_back(self, size: int) -> None:
        self.left += size


class WrittenStream:
    """`close` must follow. failure: what ends the stream for the client, if no other node goes on.

    pinging: what the client may get while it waits; empty until a node has named it. leaves: the node has said that it
    is about to end.
    """

    def __init__(self, kept: KeptBytes) -> None:
        self.pinging = b""
        self.failure = b""
        self.shown = 0
        self.leaves = self._has_left = False
        self._kept = kept
        self._log = bytearray()
        self._weights = ""
        self._can_move = True
        self._opened = 0
        self._reader = RecordReader()

    def opened(self, head: AnswerHead) -> bool:
        """Begin with the answer of a node. Whether it has records, of the same weights as those before."""
        try:
            weights, pinging = read_recorded(head.header(RECORDED) or b"")
        except ValueError:
            return False
        if self._weights not in ("", weights):
            return False
        self._weights, self.pinging = weights, pinging
        self._opened += 1
        self._reader, self.failure = RecordReader(), b""
        self.leaves = self._has_left = False
        return True

    @property
    def can_move(self) -> bool:
        return self._can_move and 0 < self._opened <= MAX_MOVES

    def rest(self, asked: Asked) -> tuple[Asked, bytes]:
        """What to ask of another node, and what precedes the body of the request."""
        known = {"weights": self._weights, "log_bytes": len(self._log), "shown": self.shown}
        return msgspec.structs.replace(asked, **known), bytes(self._log)

    def read(self, data: bytes) -> bytes:
        """What the client gets of these bytes of a node. Raises NodeFailure."""
        try:
            records = self._reader.feed(data)
        except ValueError as error:
            raise NodeFailure(Failure.PROTOCOL, str(error)) from None
        shown: list[bytes] = []
        for record in records:
            self._keep(record.log)
            match record.kind:
                case Kind.FRAME:
                    self.shown += 1
                    shown.append(record.payload)
                case Kind.PING:
                    shown.append(record.payload)
                case Kind.FAILURE:
                    self.failure += record.payload
                case Kind.STUCK:
                    self.close()
                case Kind.LEAVES:
                    self.leaves, self._has_left = self.leaves or not self._has_left, True
        return b"".join(shown)

    @property
    def is_whole(self) -> bool:
        """Whether the answer may end here."""
        return not self.failure and self._reader.is_between

    def check_end(self) -> None:
        """The node says that this was all. Raises NodeFailure if it was not."""
        if self.failure:
            raise NodeFailure(Failure.GAVE_UP, "gave the answer up")
        if not self._reader.is_between:
            raise NodeFailure(Failure.PROTOCOL, "ended its answer within a record")

    def _keep(self, log: bytes) -> None:
        if not self._can_move or not log:
            return
        if len(self._log) + len(log) > MAX_LOG_BYTES or not self._kept.take(len(log)):
            self.close()
        else:
            self._log += log

    def close(self) -> None:
        """It cannot move any more."""
        self._can_move = False
        self._kept.give_back(len(self._log))
        self._log.clear()
