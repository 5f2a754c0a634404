"""Messages of the process that renders chat templates: one reply per request, in order."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from jan_serve.core.request import ChatPrompt
from jan_serve.core.template import TemplateFacts
from jan_serve.errors import ProtocolError
from jan_serve.ipc.helper import HelperReply, framed


class RenderRequest(msgspec.Struct, frozen=True, kw_only=True):
    """now: the local time, for templates that print the date."""

    prompt: ChatPrompt
    facts: TemplateFacts
    now: datetime


class RenderReply(HelperReply, frozen=True, kw_only=True):
    """text; or code and payload of an error of the `errors` tree."""

    text: str = ""
    code: str | None = None
    payload: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


_encoder = msgspec.json.Encoder()
_requests: msgspec.json.Decoder[RenderRequest] = msgspec.json.Decoder(RenderRequest)
_replies: msgspec.json.Decoder[RenderReply] = msgspec.json.Decoder(RenderReply)


def frame(message: RenderRequest | RenderReply) -> bytes:
    """JSON in a frame, because it has integers of any size. Raises ProtocolError."""
    try:
        body = _encoder.encode(message)
    except (UnicodeEncodeError, OverflowError, RecursionError) as error:
        raise ProtocolError(f"a value cannot be sent to the renderer: {error}") from error
    return framed(body)


def decode_request(body: bytes) -> RenderRequest:
    """Inverse of `frame`, without the header. Raises ProtocolError."""
    try:
        return _requests.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ProtocolError(f"not a render request: {error}") from error


def decode_reply(body: bytes) -> RenderReply:
    """Inverse of `frame`, without the header. Raises ProtocolError."""
    try:
        return _replies.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ProtocolError(f"not a render reply: {error}") from error
