"""A regular expression to a grammar, with full-match semantics."""

from __future__ import annotations

from jan_serve.constraint.ast import Grammar, Terminal, sequence
from jan_serve.constraint.automata.to_grammar import dfa_to_expr
from jan_serve.constraint.builder import RuleBuilder
from jan_serve.constraint.limits import budget
from jan_serve.constraint.regex.flat import flat_pieces, pieces_expr
from jan_serve.constraint.regex.language import full_regex, regex_dfa
from jan_serve.constraint.text_form import PlainText
from jan_serve.errors import UnsupportedPattern


def translate(pattern: str) -> Grammar:
    """The grammar of the texts that `pattern` matches from end to end."""
    with budget():
        return _translate(pattern)


def _translate(pattern: str) -> Grammar:
    regex = full_regex(pattern)
    rules = RuleBuilder()
    form = PlainText()
    rules.reserve("root")
    pieces = flat_pieces(regex)
    if pieces is not None:
        rules.fill("root", Terminal(sequence([*pieces_expr(pieces, form), form.tail])))
        return rules.grammar("root")
    dfa = regex_dfa(regex)
    if dfa.is_empty():
        raise UnsupportedPattern(0, "no text matches the expression")
    rules.fill("root", Terminal(dfa_to_expr(dfa, form, rules, "state")))
    return rules.grammar("root")
