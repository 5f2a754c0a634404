"""Constraints and tool calls that are compiled to grammars in a helper process."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from jan_serve.core.call_pieces import CallFrame, GrammarPiece, ToolGrammar
from jan_serve.core.constraint import (
    CompiledGrammar,
    Constraint,
    Explanation,
    JsonSchemaConstraint,
    Whitespace,
)
from jan_serve.errors import GrammarTooComplex
from jan_serve.helpers.kind import HelperKind


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


def _too_much(_: CompileRequest) -> GrammarTooComplex:
    return GrammarTooComplex("the constraint needs more time or memory than one request may use")


COMPILING: Final[HelperKind[CompileRequest, Compiled]] = HelperKind(
    command="compile",
    name="constraint compiler",
    request=CompileRequest,
    result=Compiled,
    too_much=_too_much,
    codec="json",
    # A refusal then takes less than 2 s. The grammar package has a budget of its own; this is the backstop.
    cpu_limit_s=1.75,
    memory_limit_bytes=512 << 20,
)
