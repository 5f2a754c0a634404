"""What both ends of a helper process agree on: the types of requests and results, how they are sent, and the limits."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec

from jan_serve.errors import JanServeError, ProtocolError

MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
LENGTH: Final = struct.Struct("<I")

Q = TypeVar("Q")
A = TypeVar("A")

_Decoder: TypeAlias = msgspec.json.Decoder[Any] | msgspec.msgpack.Decoder[Any]


class Reply(msgspec.Struct, Generic[A], frozen=True, kw_only=True, omit_defaults=True):
    """A result; or code and payload of an error of the `errors` tree; or beyond_limits: too large to be done or sent.

    last: the process takes no request after it.
    """

    result: A | None = None
    code: str | None = None
    payload: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    beyond_limits: bool = False
    last: bool = False


@dataclass(frozen=True)
class HelperKind(Generic[Q, A]):
    """One kind of helper process. command: hidden subcommand of jan-serve. name: of a process, in messages.

    too_much: the error for a request beyond the limits. codec: JSON where a message may have integers of any size.

    cpu_limit_s, memory_limit_bytes: what a process allows itself for one request (`child.serve`). wall_limit_s: the
    clock's limit, for busy machines and for platforms without those. wait_limit_s: for a free process.
    """

    command: str
    name: str
    request: Any
    result: Any
    too_much: Callable[[Q], JanServeError]
    cpu_limit_s: float
    memory_limit_bytes: int
    codec: Literal["json", "msgpack"] = "msgpack"
    wall_limit_s: float = 10.0
    wait_limit_s: float = 60.0
    processes: int = 2
    """Two: a request that runs into its limit does not block all others."""

    def encode_request(self, request: Q) -> bytes:
        """The body of a frame. Equal requests have equal bodies. Raises ProtocolError."""
        return self._encode(request)

    def decode_request(self, body: bytes) -> Q:
        """Inverse of `encode_request`. Raises ProtocolError."""
        return self._decode(self._requests, body)

    def encode_reply(self, reply: Reply[A]) -> bytes:
        """The body of a frame. Raises ProtocolError, also for one that is too large."""
        return self._encode(reply)

    def decode_reply(self, body: bytes) -> Reply[A]:
        """Inverse of `encode_reply`. Raises ProtocolError."""
        return self._decode(self._replies, body)

    @cached_property
    def _requests(self) -> _Decoder:
        return self._decoder(self.request)

    @cached_property
    def _replies(self) -> _Decoder:
        return self._decoder(Reply[self.result])

    def _decoder(self, message: Any) -> _Decoder:
        module = msgspec.json if self.codec == "json" else msgspec.msgpack
        return module.Decoder(message)

    def _encode(self, message: object) -> bytes:
        encode = msgspec.json.encode if self.codec == "json" else msgspec.msgpack.encode
        try:
            body = encode(message)
        except (UnicodeEncodeError, OverflowError, RecursionError) as error:
            raise ProtocolError(f"a value cannot be sent to or from a {self.name}: {error}") from error
        if len(body) > MAX_FRAME_BYTES:
            raise ProtocolError(f"a message of {len(body)} bytes is too large for a {self.name}")
        return body

    def _decode(self, decoder: _Decoder, body: bytes) -> Any:
        try:
            return decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise ProtocolError(f"not a message of a {self.name}: {error}") from error


def framed(body: bytes) -> bytes:
    """The body after its length, a u32 in little-endian order."""
    return LENGTH.pack(len(body)) + body
