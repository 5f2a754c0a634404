"""Values of disaggregated serving: one server prefills a prompt, another decodes from its state."""

from __future__ import annotations

import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from jan_serve.errors import InvalidRequest, InvalidState

KEY_BYTES = 32
_MAX_CHARACTERS = 1_024


class PeerEndpoint(msgspec.Struct, frozen=True):
    """Where a server offers states to one peer, and the name and the key of their link, which the peer must present."""

    host: str
    port: int
    name: str
    key: bytes

    def to_text(self) -> str:
        """Contains the key: never log it."""
        key = urlsafe_b64encode(self.key).decode()
        fields = {"host": self.host, "port": self.port, "link": self.name, "key": key}
        return msgspec.json.encode(fields).decode()

    @classmethod
    def from_text(cls, text: str, param: str) -> PeerEndpoint:
        """Inverse of `to_text`. Raises InvalidRequest."""
        if len(text) > _MAX_CHARACTERS:
            raise InvalidRequest(f"{param}: {len(text)} characters are too long", param=param)
        try:
            found = msgspec.json.decode(text, type=_EndpointText)
            key = urlsafe_b64decode(found.key.encode())
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(
                f"{param}: this is not what `/distserve/p2p_initialize` of jan-serve answers ({error})",
                param=param,
            ) from None
        if len(key) != KEY_BYTES or not 0 < found.port < 65_536 or not found.host:
            raise InvalidRequest(f"{param}: host, port and key must be those of a server", param=param)
        return cls(found.host, found.port, found.link, key)


class _EndpointText(msgspec.Struct):
    host: str
    port: int
    link: str
    key: str


class RemoteState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a prompt on a linked server. caller: who linked the two (`core.caller.key_of_request`). engine:
    the peer's id. session: the request's id there. next_token: the token sampled after the prompt; None accepts any."""

    caller: str = ""
    engine: str
    session: int
    next_token: int | None = None


FORMAT_VERSION: Final = 2
_MAGIC: Final = b"JSEQ"
_PREFIX: Final = struct.Struct("<4sI")
# A state: magic, length of the header, header (msgpack), logits (float32, little endian), memory (llama.cpp's format),
# and a BLAKE2b digest of all before it. Not for storage: both ends run the same version of this program.
_MAX_HEADER_BYTES: Final = 64 * 1024 * 1024
_DIGEST_BYTES: Final = 32


class StateIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Must be equal on both sides. model: a digest of the weights. llama_state: version of llama.cpp's format.

    rope_factors: those that the positions are rotated by, where the length of the context decides.
    """

    model: str
    type_k: str
    type_v: str
    llama_state: int
    rope_factors: str = ""
    format: int = FORMAT_VERSION

    def difference(self, other: StateIdentity) -> str | None:
        """Why a state of `other` cannot be used here; None if it can."""
        if self.format != other.format or self.llama_state != other.llama_state:
            theirs, own = f"{other.format}.{other.llama_state}", f"{self.format}.{self.llama_state}"
            return f"it has version {theirs}, and this server reads {own}"
        if self.model != other.model:
            return f"it is of another model ({other.model[:12]}, and this one is {self.model[:12]})"
        if (self.type_k, self.type_v) != (other.type_k, other.type_v):
            theirs, own = f"{other.type_k} and {other.type_v}", f"{self.type_k} and {self.type_v}"
            return f"its cache has the types {theirs}, and this one {own}"
        if self.rope_factors != other.rope_factors:
            theirs, own = other.rope_factors or "usual", self.rope_factors or "usual"
            return (
                f"it has the {theirs} RoPE factors, and this one the {own} ones: both servers need such an --n-ctx that"
                " they agree"
            )
        return None


class SequenceState(msgspec.Struct, frozen=True, kw_only=True):
    """A sequence after its prompt.

    tokens: those in the memory. seed: of the sequence's sampler. next_token: sampled after `tokens` from `logits`
    (n_vocab float32, little endian), not in the memory. memory: see LlamaContext.
    """

    tokens: tuple[int, ...]
    seed: int
    next_token: int
    logits: bytes
    memory: memoryview


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    identity: StateIdentity
    tokens: tuple[int, ...]
    seed: int
    next_token: int
    logits_bytes: int
    memory_bytes: int


_encoder = msgspec.msgpack.Encoder()
_headers: msgspec.msgpack.Decoder[_Header] = msgspec.msgpack.Decoder(_Header)


def encode_state(state: SequenceState, identity: StateIdentity) -> tuple[bytes | memoryview, ...]:
    """The parts whose concatenation is the state. Hashes them (linear time) without copying the large ones."""
    header = _encoder.encode(
        _Header(
            identity=identity,
            tokens=state.tokens,
            seed=state.seed,
            next_token=state.next_token,
            logits_bytes=len(state.logits),
            memory_bytes=len(state.memory),
        )
    )
    parts = (_PREFIX.pack(_MAGIC, len(header)) + header, state.logits, state.memory)
    return (*parts, _digest(parts))


def decode_state(data: bytes | bytearray, expected: StateIdentity) -> SequenceState:
    """Inverse of `encode_state`. Raises InvalidState if the state is damaged or of another model."""
    body = memoryview(data)
    if len(body) < _PREFIX.size + _DIGEST_BYTES:
        raise InvalidState("The state is incomplete.")
    magic, header_bytes = _PREFIX.unpack_from(body)
    if magic != _MAGIC or header_bytes > min(_MAX_HEADER_BYTES, len(body)):
        raise InvalidState("This is not the state of a sequence.")
    if _digest((body[:-_DIGEST_BYTES],)) != bytes(body[-_DIGEST_BYTES:]):
        raise InvalidState("The state is damaged: its checksum is wrong.")
    start = _PREFIX.size + header_bytes
    try:
        header = _headers.decode(body[_PREFIX.size : start])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidState(f"The state has another form: {error}.") from None
    if difference := expected.difference(header.identity):
        raise InvalidState(f"The state cannot be used here: {difference}.")
    end = start + header.logits_bytes
    if min(header.logits_bytes, header.memory_bytes) < 0 or end + header.memory_bytes + _DIGEST_BYTES != len(
        body
    ):
        raise InvalidState("The state is incomplete.")
    if not header.tokens or not header.memory_bytes:
        raise InvalidState("The state is empty.")
    return SequenceState(
        tokens=header.tokens,
        seed=header.seed,
        next_token=header.next_token,
        logits=bytes(body[start:end]),
        memory=body[end : end + header.memory_bytes],
    )


def _digest(parts: Sequence[bytes | memoryview]) -> bytes:
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        digest.update(part)
    return digest.digest()
