"""The grammars of calls as the server makes them, and as trees that tests can draw texts from."""

from __future__ import annotations

from collections.abc import Sequence

from jan_serve.chat.chat_format import ChatFormat
from jan_serve.constraint.ast import Grammar, Mode, RuleRef
from jan_serve.constraint.enforce import enforce
from jan_serve.constraint.rules import rename
from jan_serve.core.constraint import CallGrammars, Constraint
from jan_serve.core.messages import Tool
from jan_serve.generation.constraint.call_frame import call_frame, frame_trees, tool_hole
from jan_serve.generation.constraint.call_join import JoinedTool, join_calls
from jan_serve.generation.constraint.tool_grammar import answer_has_terminals, tool_arguments, tool_grammar


def call_grammars(
    form: ChatFormat, tools: Sequence[Tool], *, parallel: bool, constraint: Constraint | None = None
) -> CallGrammars:
    """As GrammarCache.compile_calls, in the test's own process and without a limit of time."""
    frame = call_frame(form, [tool.name for tool in tools], parallel=parallel, answer=constraint is not None)
    joined = [
        JoinedTool(
            tool.name,
            tool_grammar(form, tool.parameters, strict=bool(tool.strict)),
            may_be_loosened=not tool.strict,
        )
        for tool in tools
    ]
    answer = (
        None
        if constraint is None
        else enforce(constraint, alone=True, terminals=answer_has_terminals(form)).piece()
    )
    return join_calls(frame, joined, tool_grammar(form, {"type": "object"}).piece, answer)


def call_trees(
    form: ChatFormat, tools: Sequence[Tool], *, parallel: bool, constraint: Constraint | None = None
) -> list[Grammar]:
    """The same as trees: the whole, and what follows each trigger."""
    fillings = {
        tool_hole(number): tool_arguments(form, tool.parameters)[0].translate(Mode.IN_RULES).grammar
        for number, tool in enumerate(tools)
    }
    if constraint is not None:
        fillings["answer"] = enforce(constraint, alone=True).grammar
    names = [tool.name for tool in tools]
    frames = frame_trees(form, names, parallel=parallel, answer=constraint is not None)
    return [_filled(frame, fillings) for frame in frames]


def _filled(frame: Grammar, fillings: dict[str, Grammar]) -> Grammar:
    rules = dict(frame.rules)
    for hole, grammar in fillings.items():
        names = {name: f"{hole}-of-{name}" for name in grammar.rules}
        rules |= {names[name]: rename(expr, names) for name, expr in grammar.rules.items()}
        rules[hole] = RuleRef(names[grammar.root])
    return Grammar(rules, frame.root)
