"""`jan-serve grammar`: prints the grammar of a schema or pattern, and checks a text against it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from jan_serve.cli.errors import FAILED, WRONG_USE, CommandError
from jan_serve.cli.input import read_file, read_input
from jan_serve.cli.output import Output
from jan_serve.core.constraint import Whitespace
from jan_serve.errors import InvalidRequest
from jan_serve.resources import shipped_grammars

if TYPE_CHECKING:
    from jan_serve.constraint import Grammar

_CONTEXT: Final = 30


def grammar(
    source: Annotated[
        str | None,
        typer.Argument(help="A file with a JSON Schema or GBNF, - for standard input, or a shipped grammar."),
    ] = None,
    regex: Annotated[
        str | None, typer.Option("--regex", help="Use a regular expression instead of SOURCE.")
    ] = None,
    check: Annotated[
        str | None, typer.Option("--check", help="Check whether this text matches the grammar.")
    ] = None,
    lark: Annotated[
        bool,
        typer.Option("--lark", help="Print Lark for llguidance, as the server runs it, instead of GBNF."),
    ] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Say what a schema costs, or which keyword to change if it is refused."
        ),
    ] = False,
    whitespace: Annotated[
        Whitespace, typer.Option("--whitespace", help="White space of JSON.")
    ] = Whitespace.CONSISTENT,
) -> None:
    """Print the grammar of a JSON Schema, a regular expression or a GBNF text, or check a text against it."""
    from jan_serve.constraint import (
        json_schema_to_grammar,
        parse_gbnf,
        print_gbnf,
        print_lark,
        regex_to_grammar,
    )

    if (source is None) == (regex is None):
        raise CommandError("pass either SOURCE or --regex", "See `jan-serve grammar --help`.", WRONG_USE)
    text = "" if source is None else _text(source)
    is_schema = source is not None and "::=" not in text
    schema = _schema(source or "", text) if is_schema else None
    if explain:
        if not is_schema:
            raise CommandError("--explain is for a JSON Schema", "See `jan-serve grammar --help`.", WRONG_USE)
        _explain(schema, whitespace, Output())
        return
    try:
        if is_schema and lark and check is None:
            printed = _enforced(schema, whitespace)
        else:
            if is_schema:
                found = json_schema_to_grammar(schema, whitespace=whitespace)
            else:
                found = parse_gbnf(text) if regex is None else regex_to_grammar(regex)
            printed = print_lark(found) if lark else print_gbnf(found)
            if check is not None:
                _check(found, check, Output())
                return
    except InvalidRequest as error:
        raise CommandError(error.message, _hint(schema, whitespace), FAILED) from None
    sys.stdout.write(printed.rstrip("\n") + "\n")


def _enforced(schema: Any, whitespace: Whitespace) -> str:
    """The Lark text that the server runs. Raises as `enforced_schema`."""
    from jan_serve.constraint import enforced_schema

    return enforced_schema(schema, whitespace=whitespace).lark.text


def _hint(schema: Any, whitespace: Whitespace) -> str:
    try:
        _enforced(schema, whitespace)
    except InvalidRequest:
        return "docs/grammar-support.md lists the supported features."
    return "The server takes this schema, in a form that GBNF lacks: --lark prints it."


def _explain(schema: Any, whitespace: Whitespace, output: Output) -> None:
    from jan_serve.constraint.explain import explain

    compiles, lines = explain(schema, whitespace=whitespace)
    for line in lines:
        output.data(line)
    if not compiles:
        raise typer.Exit(FAILED)


def _schema(source: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{source} is neither GBNF nor JSON: {error}", None, WRONG_USE) from None


def _text(source: str) -> str:
    if source == "-":
        return read_input(Output())
    path = Path(source)
    names = shipped_grammars()
    if path.exists():
        return read_file(path)
    if source not in names:
        hint = f"Shipped grammars: {', '.join(sorted(names))}."
        raise CommandError(f"cannot read {source}: there is no such file", hint, WRONG_USE)
    return names[source]


def _check(found: Grammar, text: str, output: Output) -> None:
    from jan_serve.constraint import Recognizer

    at = Recognizer(found).leaves_at(text)
    if at is None:
        output.data("the text belongs to the grammar")
        return
    if at == len(text):
        output.data(f"the text is only the beginning: it may not end at character {at}")
    else:
        before = text[max(0, at - _CONTEXT) : at]
        output.data(f"the text leaves the grammar at character {at}: {before!r}, then {text[at]!r}")
    raise typer.Exit(FAILED)
