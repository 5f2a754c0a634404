"""`jan-serve grammar`: prints the grammar of a schema or pattern, and checks a text against it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from jan_serve.cli.arguments import argument, option
from jan_serve.cli.errors import FAILED, CommandError, WrongUse
from jan_serve.cli.input import read_file, read_input
from jan_serve.cli.output import output
from jan_serve.core.constraint import (
    Constraint,
    GbnfConstraint,
    JsonSchemaConstraint,
    PropertyOrder,
    RegexConstraint,
    Whitespace,
)
from jan_serve.errors import InvalidRequest
from jan_serve.resources import shipped_grammars

if TYPE_CHECKING:
    from jan_serve.constraint.enforce import Enforced

_CONTEXT: Final = 30


def grammar(
    source: Annotated[
        str | None,
        argument("SOURCE", "A file with a JSON Schema or GBNF, - for standard input, or a shipped grammar."),
    ] = None,
    regex: Annotated[str | None, option("--regex", "Use a regular expression instead of SOURCE.")] = None,
    check: Annotated[str | None, option("--check", "Check whether the server would write this text.")] = None,
    lark: Annotated[
        bool, option("--lark", "Print Lark, as the server runs it. GBNF has comments on what it leaves out.")
    ] = False,
    explain: Annotated[
        bool, option("--explain", "Say what a schema costs, or which keyword to change if it is refused.")
    ] = False,
    whitespace: Annotated[Whitespace, option("--whitespace", "White space of JSON.")] = Whitespace.CONSISTENT,
    order: Annotated[
        PropertyOrder, option("--property-order", "Order of the properties that a schema lists.")
    ] = PropertyOrder.SCHEMA,
) -> None:
    """Print the grammar of a JSON Schema, a regular expression or a GBNF text, or check a text against it."""
    from jan_serve.constraint.enforce import enforce

    if (source is None) == (regex is None):
        raise WrongUse("pass either SOURCE or --regex", "See `jan-serve grammar --help`.")
    constraint = (
        _constraint(source, whitespace, order) if source is not None else RegexConstraint(regex or "")
    )
    if explain:
        if not isinstance(constraint, JsonSchemaConstraint):
            raise WrongUse("--explain is for a JSON Schema", "See `jan-serve grammar --help`.")
        _explain(constraint)
        return
    try:
        found = enforce(constraint)
        if check is not None:
            _check(found, check)
            return
        printed = found.compiled.lark if lark else found.gbnf()
    except InvalidRequest as error:
        hint = "docs/grammar-support.md lists the supported features."
        raise CommandError(error.message, hint, FAILED) from None
    sys.stdout.write(printed.rstrip("\n") + "\n")


def _explain(constraint: JsonSchemaConstraint) -> None:
    from jan_serve.constraint.explain import explain

    explanation = explain(constraint)
    for line in explanation.lines:
        output.data(line)
    if not explanation.compiles:
        raise typer.Exit(FAILED)


def _constraint(source: str, whitespace: Whitespace, order: PropertyOrder) -> Constraint:
    text = _text(source)
    if "::=" in text:
        return GbnfConstraint(text)
    try:
        return JsonSchemaConstraint(json.loads(text), whitespace, order)
    except (ValueError, RecursionError) as error:
        raise WrongUse(f"{source} is neither GBNF nor JSON: {error}") from None


def _text(source: str) -> str:
    if source == "-":
        return read_input()
    path = Path(source)
    names = shipped_grammars()
    if path.exists():
        return read_file(path)
    if source not in names:
        hint = f"Shipped grammars: {', '.join(sorted(names))}."
        raise WrongUse(f"cannot read {source}: there is no such file", hint)
    return names[source]


def _check(found: Enforced, text: str) -> None:
    from jan_serve.constraint.explain import leaves_at

    at = leaves_at(found, text)
    if at is None:
        output.data("the text belongs to the grammar")
        return
    if at == len(text):
        output.data(f"the text is only the beginning: it may not end at character {at}")
    else:
        before = text[max(0, at - _CONTEXT) : at]
        output.data(f"the text leaves the grammar at character {at}: {before!r}, then {text[at]!r}")
    raise typer.Exit(FAILED)
