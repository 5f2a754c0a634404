"""Values of disaggregated serving: one server computes a prompt, another one goes on from it. Pure."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

from jan_serve.errors import InvalidRequest

KEY_BYTES = 32
_MAX_TEXT = 1_024


class PeerEndpoint(msgspec.Struct, frozen=True):
    """Where a server gives states to one peer, and the secret that the peer has to know."""

    host: str
    port: int
    key: bytes

    def to_text(self) -> str:
        """For people's eyes only as far as logs go: it has the key."""
        known = {"host": self.host, "port": self.port, "key": urlsafe_b64encode(self.key).decode()}
        return msgspec.json.encode(known).decode()

    @classmethod
    def from_text(cls, text: str, param: str) -> PeerEndpoint:
        """Inverse of `to_text`. Raises InvalidRequest."""
        if len(text) > _MAX_TEXT:
            raise InvalidRequest(f"{param}: {len(text)} characters are too long", param=param)
        try:
            found = msgspec.json.decode(text, type=_EndpointText)
            key = urlsafe_b64decode(found.key.encode())
        except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
            raise InvalidRequest(
                f"{param}: this is not what `/distserve/p2p_initialize` of jan-serve answers ({error})",
                param=param,
            ) from None
        if len(key) != KEY_BYTES or not 0 < found.port < 65_536 or not found.host:
            raise InvalidRequest(f"{param}: host, port and key must be those of a server", param=param)
        return cls(found.host, found.port, key)


class _EndpointText(msgspec.Struct):
    host: str
    port: int
    key: str


class RemoteState(msgspec.Struct, frozen=True, kw_only=True):
    """What a linked server keeps of a prompt. engine: the name it is linked by. session: what it knows the request by.

    next_token: the token that it sampled behind the prompt; None takes whichever it was.
    """

    engine: str
    session: int
    next_token: int | None = None
