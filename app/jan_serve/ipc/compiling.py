"""Messages of the process that compiles constraints: one reply per request, in order.

Requests are JSON, because schemas may have numbers that msgpack cannot encode.
"""

from __future__ import annotations

from typing import Any

import msgspec

from jan_serve.core.call_pieces import CallFrame, GrammarPiece, ToolGrammar
from jan_serve.core.constraint import (
    CompiledGrammar,
    Constraint,
    Explanation,
    JsonSchemaConstraint,
    Whitespace,
)
from jan_serve.errors import ProtocolError, error_from_payload
from jan_serve.ipc.helper import HelperReply, framed


class CompileConstraint(msgspec.Struct, frozen=True, tag="constraint"):
    """Compile a constraint on a whole answer. with_gbnf: as GBNF too, to show it."""

    constraint: Constraint
    with_gbnf: bool = False


class ExplainSchema(msgspec.Struct, frozen=True, tag="explain"):
    """Say what a schema costs, or which keyword to change."""

    constraint: JsonSchemaConstraint


class CompileTool(msgspec.Struct, frozen=True, kw_only=True, tag="tool"):
    """Compile the arguments of one tool; arguments of `tool_grammar`. form: name of the chat format."""

    form: str
    parameters: dict[str, Any]
    strict: bool
    whitespace: Whitespace


class CompileFrame(msgspec.Struct, frozen=True, kw_only=True, tag="frame"):
    """Compile the frame of calls of the tools with these names; arguments of `call_frame`."""

    form: str
    names: tuple[str, ...]
    parallel: bool
    answer: bool


class CompileAnswer(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """Compile a constraint on an answer without a call, in a format that also allows calls."""

    form: str
    constraint: Constraint


CompileRequest = CompileConstraint | ExplainSchema | CompileTool | CompileFrame | CompileAnswer
Compiled = CompiledGrammar | Explanation | ToolGrammar | CallFrame | GrammarPiece


class CompileReply(HelperReply, frozen=True, kw_only=True):
    """One of grammar, explanation, tool, frame and piece, by the request; or code and payload of an error."""

    grammar: CompiledGrammar | None = None
    explanation: Explanation | None = None
    tool: ToolGrammar | None = None
    frame: CallFrame | None = None
    piece: GrammarPiece | None = None
    code: str | None = None
    payload: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])

    def compiled(self) -> Compiled:
        """The result. Raises the error of the reply, or ProtocolError."""
        if self.code is not None:
            raise error_from_payload(self.code, self.payload)
        compiled = self.grammar or self.explanation or self.tool or self.frame or self.piece
        if compiled is None:
            raise ProtocolError("a reply without a grammar")
        return compiled


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
