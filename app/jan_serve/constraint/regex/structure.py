"""Writes an expression in its own structure, for executors that need no determinism: those of terminals."""

from __future__ import annotations

from jan_serve.constraint.ast import Expr, choice, repeat, sequence
from jan_serve.constraint.limits import spend
from jan_serve.constraint.regex.ast import Alternation, Chars, Concat, Loop, Regex
from jan_serve.constraint.text_form import TextForm


def structure_expr(regex: Regex, form: TextForm) -> Expr:
    """The words of `regex`, which has no assertion, lookahead or automaton."""
    spend()
    match regex:
        case Chars(chars):
            return form.chars(chars)
        case Concat(items):
            return sequence([structure_expr(item, form) for item in items])
        case Alternation(items):
            return choice([structure_expr(item, form) for item in items])
        case Loop(item, low, high):
            return repeat(structure_expr(item, form), low, high)
        case _:
            raise ValueError("an assertion has no text of its own")
