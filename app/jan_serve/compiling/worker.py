"""Compiles the constraints that arrive on the pipe, one after another. The hidden command is `jan-serve compile`.

The grammar package has its own work budget; the limits here are the backstop.
"""

from __future__ import annotations

from typing import Final

from jan_serve.chat.detect import FORMATS
from jan_serve.errors import GrammarTooComplex, JanServeError, ProtocolError
from jan_serve.generation.constraint.call_frame import call_frame
from jan_serve.generation.constraint.constraint_grammar import (
    compile_constraint,
    explained,
    print_piece,
    translate_constraint,
)
from jan_serve.generation.constraint.tool_grammar import answer_has_tokens, tool_grammar
from jan_serve.ipc.compiling import (
    CompileAnswer,
    CompileConstraint,
    CompileFrame,
    CompileReply,
    CompileTool,
    ExplainSchema,
    decode_request,
    reply_frame,
)
from jan_serve.ipc.helper import ran_out_of_memory, serve

CPU_LIMIT_S: Final = 1.75
"""So that a refusal takes less than 2 s. The caller's wall-clock limit is for machines that are busy."""

MEMORY_LIMIT_BYTES: Final = 512 << 20

_FORMATS: Final = {form.name: form for form in FORMATS}


def main() -> int:
    """Serve requests until the pipe closes."""
    return serve(Compiling(), cpu_limit_s=CPU_LIMIT_S, memory_limit_bytes=MEMORY_LIMIT_BYTES)


class Compiling:
    """A HelperWork."""

    def answer(self, body: bytes) -> CompileReply:
        """The grammar, or the error of the constraint."""
        try:
            return _compiled(body)
        except JanServeError as error:
            return _refused(error, last=ran_out_of_memory(error))
        except RecursionError:
            return _refused(GrammarTooComplex("the constraint is nested deeper than one request may be"))

    def refusal(self, error: MemoryError | ProtocolError) -> CompileReply:
        """Of a grammar that is too large."""
        if isinstance(error, MemoryError):
            return _refused(GrammarTooComplex("the constraint needs more memory than one request may use"))
        return _refused(GrammarTooComplex("the constraint becomes a larger grammar than one request may use"))

    def frame(self, reply: CompileReply) -> bytes:
        return reply_frame(reply)


def _compiled(body: bytes) -> CompileReply:
    request = decode_request(body)
    if isinstance(request, CompileConstraint):
        return CompileReply(grammar=compile_constraint(request.constraint, with_gbnf=request.with_gbnf))
    if isinstance(request, ExplainSchema):
        return CompileReply(explanation=explained(request.constraint))
    form = _FORMATS.get(request.form)
    if form is None:
        raise ProtocolError(f"no chat format is named {request.form!r}")
    match request:
        case CompileTool(parameters=parameters, strict=strict, whitespace=whitespace):
            return CompileReply(tool=tool_grammar(form, parameters, strict=strict, whitespace=whitespace))
        case CompileFrame(names=names, parallel=parallel, answer=answer):
            return CompileReply(frame=call_frame(form, names, parallel=parallel, answer=answer))
        case CompileAnswer(constraint=constraint):
            tokens = answer_has_tokens(form)
            return CompileReply(piece=print_piece(translate_constraint(constraint), tokens=tokens))


def _refused(error: JanServeError, *, last: bool = False) -> CompileReply:
    return CompileReply(code=error.code, payload=error.payload(), last=last)
