"""Messages of the process that compiles constraints: one reply per request, in order.

Requests are JSON, because schemas may have numbers that msgpack cannot encode.
"""

from __future__ import annotations

from typing import Any

import msgspec

from jan_serve.core.constraint import CompiledGrammar, Constraint
from jan_serve.core.guide import CallGrammars
from jan_serve.core.messages import Tool
from jan_serve.errors import ProtocolError
from jan_serve.ipc.helper import HelperReply, framed


class CompileConstraint(msgspec.Struct, frozen=True, tag="constraint"):
    """Compile a constraint on a whole answer."""

    constraint: Constraint


class CompileCalls(msgspec.Struct, frozen=True, kw_only=True, tag="calls"):
    """Compile the calls of these tools; arguments of `call_grammars`. form: name of the chat format."""

    form: str
    tools: tuple[Tool, ...]
    parallel: bool
    constraint: Constraint | None


CompileRequest = CompileConstraint | CompileCalls
Compiled = CompiledGrammar | CallGrammars


class CompileReply(HelperReply, frozen=True, kw_only=True):
    """grammar or calls, by the request; or code and payload of an error of the `errors` tree."""

    grammar: CompiledGrammar | None = None
    calls: CallGrammars | None = None
    code: str | None = None
    payload: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


_requests: msgspec.json.Decoder[CompileRequest] = msgspec.json.Decoder(CompileRequest)
_replies: msgspec.msgpack.Decoder[CompileReply] = msgspec.msgpack.Decoder(CompileReply)


def encode_request(request: CompileRequest) -> bytes:
    """The body of a frame. Equal requests have equal bodies. Raises ProtocolError.

    The order of a schema's properties matters: it is the order of the output.
    """
    try:
        return msgspec.json.encode(request)
    except (UnicodeEncodeError, RecursionError) as error:
        raise ProtocolError(
            f"a constraint cannot be sent to the process that compiles it: {error}"
        ) from error


def decode_request(body: bytes) -> CompileRequest:
    """Inverse of `encode_request`. Raises ProtocolError."""
    try:
        return _requests.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ProtocolError(f"not a request to compile: {error}") from error


def reply_frame(reply: CompileReply) -> bytes:
    """As `framed`. Raises ProtocolError."""
    return framed(msgspec.msgpack.encode(reply))


def decode_reply(body: bytes) -> CompileReply:
    """Inverse of `reply_frame`, without the header. Raises ProtocolError."""
    try:
        return _replies.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ProtocolError(f"not a reply to a request to compile: {error}") from error
