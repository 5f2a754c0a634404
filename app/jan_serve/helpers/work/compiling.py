"""Compiles constraints and tool calls."""

from __future__ import annotations

from typing import Final

from jan_serve.chat.call_form import in_form
from jan_serve.chat.detect import FORMATS
from jan_serve.constraint.enforce import enforce
from jan_serve.constraint.limits import MAX_STEPS
from jan_serve.core.constraint import Constraint
from jan_serve.errors import GrammarTooComplex, ProtocolError
from jan_serve.generation.constraint.call_frame import call_frame
from jan_serve.generation.constraint.tool_grammar import answer_has_terminals, tool_grammar
from jan_serve.helpers.kinds import (
    CompileAnswer,
    Compiled,
    CompileFrame,
    CompileRequest,
    CompileTool,
    ExplainSchema,
    ShowConstraint,
)

_FORMATS: Final = {form.name: form for form in FORMATS}
_MOST_STEPS: Final = 2 * MAX_STEPS  # steps to look for a change: the process has a limit of CPU time


def compiled(request: CompileRequest) -> Compiled:
    """The grammar or grammars. Raises the error of the constraint."""
    try:
        return _compiled(request)
    except RecursionError:
        raise GrammarTooComplex("the constraint is nested deeper than one request may be") from None


def _compiled(request: CompileRequest) -> Compiled:
    if isinstance(request, Constraint):
        return enforce(request).compiled
    if isinstance(request, ShowConstraint):
        return enforce(request.constraint).gbnf()
    if isinstance(request, ExplainSchema):
        from jan_serve.constraint.explain import explain  # only people ask for it

        return explain(request.constraint, most_steps=_MOST_STEPS)
    form = _FORMATS.get(request.form.name)
    if form is None:
        raise ProtocolError(f"no chat format is named {request.form.name!r}")
    form = in_form(form, request.form.form)
    match request:
        case CompileTool(parameters=parameters, strict=strict, whitespace=whitespace, order=order):
            return tool_grammar(form, parameters, strict=strict, whitespace=whitespace, order=order)
        case CompileFrame(names=names, parallel=parallel, answer=answer):
            return call_frame(form, names, parallel=parallel, answer=answer)
        case CompileAnswer(constraint=constraint):
            terminals = answer_has_terminals(form)
            return enforce(constraint, alone=True, terminals=terminals).piece()
