"""Connects servers that share a key over mutually authenticated, unencrypted TCP, and defines their messages.

Handshake: the client sends its name and a nonce; the server a nonce and its proof; the client its proof. A proof is
an HMAC-SHA256 (RFC 2104) over the sender's role, both nonces and the name. Then records: u32 length, body, and a
keyed BLAKE2b (RFC 7693) over direction, number and body under a key of this connection, which detects changed,
dropped, repeated and reflected records. A body is a message (one request, then its answer) or a part of a state.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import struct
from collections.abc import Callable, Generator
from hashlib import blake2b, sha256
from typing import Any, Final, TypeVar

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


T = TypeVar("T")

PeerRequest = Fetch | Release | Ping
PeerAnswer = Found | Done | Refused

_requests: msgspec.msgpack.Decoder[PeerRequest] = msgspec.msgpack.Decoder(PeerRequest)
_answers: msgspec.msgpack.Decoder[PeerAnswer] = msgspec.msgpack.Decoder(PeerAnswer)


def encode(message: PeerRequest | PeerAnswer) -> bytes:
    return msgspec.msgpack.encode(message)


def decode_request(body: bytes) -> PeerRequest:
    return _decoded(_requests, body, "asked")


def decode_answer(body: bytes) -> PeerAnswer:
    return _decoded(_answers, body, "answered")


def _decoded(decoder: msgspec.msgpack.Decoder[T], body: bytes, verb: str) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise PeerFailed(f"The other server {verb} something that is not known here ({error}).") from None


_MAGIC: Final = b"JSKV\x01"
_HELLO: Final = struct.Struct("<5sH")
_LENGTH: Final = struct.Struct("<I")
_COUNT: Final = struct.Struct("<Q")
_NONCE_BYTES: Final = 32
_PROOF_BYTES: Final = 32
_MAC_BYTES: Final = 16
MAX_NAME_BYTES: Final = 1024
_BUFFER: Final = 4 * 1024 * 1024
_MAX_SHOWN: Final = 200

_FROM_CLIENT: Final = b"client"
_FROM_SERVER: Final = b"server"


class PeerConnection:
    """One end, after the handshake. Every wait ends after `patience_s`."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        key: bytes,
        *,
        is_server: bool,
        patience_s: float,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._key = key
        self._ours, self._theirs = (_FROM_SERVER, _FROM_CLIENT) if is_server else (_FROM_CLIENT, _FROM_SERVER)
        self._sent = self._received = 0
        self._patience_s = patience_s

    async def send(self, body: bytes) -> None:
        """Waits while the peer does not read. Raises PeerFailed."""
        mac = self._mac(self._ours, self._sent, body)
        self._sent += 1
        with _as_peer_failure():
            self._writer.writelines((_LENGTH.pack(len(body)), body, mac))
            async with asyncio.timeout(self._patience_s):
                await self._writer.drain()

    async def receive(self) -> bytes | None:
        """The next record; None if the peer has closed. Raises PeerFailed."""
        with _as_peer_failure():
            async with asyncio.timeout(self._patience_s):
                try:
                    (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
                except asyncio.IncompleteReadError as ended:
                    if ended.partial:
                        raise
                    return None
                if length > MAX_RECORD_BYTES:
                    raise PeerFailed(f"The other server announced a record of {length} bytes.")
                body = await self._reader.readexactly(length)
                mac = await self._reader.readexactly(_MAC_BYTES)
        if not hmac.compare_digest(mac, self._mac(self._theirs, self._received, body)):
            raise PeerFailed("What the other server sent was changed on the way.")
        self._received += 1
        return body

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(self._patience_s):
                await self._writer.wait_closed()

    def close_soon(self) -> None:
        """Close it once all is sent. Never waits."""
        self._writer.close()

    def abort(self) -> None:
        """Close it at once, and discard unsent data."""
        self._writer.transport.abort()

    def _mac(self, direction: bytes, number: int, body: bytes) -> bytes:
        mac = blake2b(_COUNT.pack(number), key=self._key, digest_size=_MAC_BYTES, person=direction)
        mac.update(body)
        return mac.digest()


async def connect(
    host: str, port: int, name: str, key: bytes, *, connect_s: float, patience_s: float
) -> PeerConnection:
    """Raises PeerFailed, also for a wrong key. connect_s: for the connection, and again for the handshake."""
    with _as_peer_failure():
        async with asyncio.timeout(connect_s):
            try:
                reader, writer = await asyncio.open_connection(host, port, limit=_BUFFER)
            except ValueError:  # of IDNA, or of a NUL
                raise PeerFailed(f"{host[:_MAX_SHOWN]!r} is not the name or address of a host.") from None
    try:
        with _as_peer_failure():
            async with asyncio.timeout(connect_s):
                connection_key = await _prove_to_server(reader, writer, name, key)
    except BaseException:
        writer.transport.abort()
        raise
    return PeerConnection(reader, writer, connection_key, is_server=False, patience_s=patience_s)


async def accept(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    key_of: Callable[[str], bytes | None],
    *,
    handshake_s: float,
    patience_s: float,
) -> tuple[str, PeerConnection]:
    """The server's side of the handshake: the client's name and the connection. key_of: None for unknown names.
    Raises PeerFailed; the caller then closes the writer."""
    with _as_peer_failure():
        async with asyncio.timeout(handshake_s):
            magic, length = _HELLO.unpack(await reader.readexactly(_HELLO.size))
            if magic != _MAGIC or length > MAX_NAME_BYTES:
                raise PeerFailed("A client spoke another protocol.")
            name = await reader.readexactly(length)
            theirs = await reader.readexactly(_NONCE_BYTES)
            ours = os.urandom(_NONCE_BYTES)
            # An unknown name fails exactly as a wrong key does.
            key = key_of(name.decode("utf-8", "replace")) or os.urandom(_PROOF_BYTES)
            writer.write(ours + _proof(key, _FROM_SERVER, theirs, ours, name))
            await writer.drain()
            proof = await reader.readexactly(_PROOF_BYTES)
    if not hmac.compare_digest(proof, _proof(key, _FROM_CLIENT, theirs, ours, name)):
        raise PeerFailed("A client does not know the key of its link.")
    session = _session_key(key, theirs, ours)
    connection = PeerConnection(reader, writer, session, is_server=True, patience_s=patience_s)
    return name.decode("utf-8", "replace"), connection


async def _prove_to_server(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str, key: bytes
) -> bytes:
    name_bytes = name.encode()
    ours = os.urandom(_NONCE_BYTES)
    writer.write(_HELLO.pack(_MAGIC, len(name_bytes)) + name_bytes + ours)
    await writer.drain()
    theirs = await reader.readexactly(_NONCE_BYTES)
    proof = await reader.readexactly(_PROOF_BYTES)
    if not hmac.compare_digest(proof, _proof(key, _FROM_SERVER, ours, theirs, name_bytes)):
        raise PeerFailed("The other server does not know the key of this link: link the two again.")
    writer.write(_proof(key, _FROM_CLIENT, ours, theirs, name_bytes))
    await writer.drain()
    return _session_key(key, ours, theirs)


def _proof(key: bytes, role: bytes, client_nonce: bytes, server_nonce: bytes, name: bytes) -> bytes:
    return hmac.digest(key, role + client_nonce + server_nonce + name, sha256)


def _session_key(key: bytes, client_nonce: bytes, server_nonce: bytes) -> bytes:
    return hmac.digest(key, b"records" + client_nonce + server_nonce, sha256)


@contextlib.contextmanager
def _as_peer_failure() -> Generator[None]:
    """Turn network errors into PeerFailed."""
    try:
        yield
    except TimeoutError:
        raise PeerFailed("The other server did not answer in time.") from None
    except asyncio.IncompleteReadError:
        raise PeerFailed("The other server broke off the connection.") from None
    except OSError as error:
        raise PeerFailed(f"The other server cannot be reached: {error.strerror or error}.") from None
