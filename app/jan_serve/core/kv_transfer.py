"""Values of disaggregated serving: one server prefills a prompt, another decodes from its state."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

from jan_serve.errors import InvalidRequest

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
    """The state of a prompt on a linked server. caller: who linked the two (`core.cache_salt.key_of_request`).
    engine: the peer's id. session: the request's id there.

    next_token: the token sampled after the prompt; None accepts any.
    """

    caller: str = ""
    engine: str
    session: int
    next_token: int | None = None
