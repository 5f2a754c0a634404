"""This module translates a regular expression to a grammar, with full-match semantics.

Flat expressions, sequences of counted character classes that are each disjoint from the next, are printed as
written, whatever the counts: an automaton would need a state for each count. Executors of terminals need no
determinism, so they get an expression in its own structure.
"""

from __future__ import annotations

from typing import TypeAlias

from jan_serve.constraint import charset
from jan_serve.constraint.ast import Expr, Grammar, Terminal, choice, repeat, sequence
from jan_serve.constraint.automata.to_grammar import dfa_to_expr
from jan_serve.constraint.builder import RuleBuilder
from jan_serve.constraint.charset import CharSet
from jan_serve.constraint.limits import budget, spend
from jan_serve.constraint.regex.ast import Alternation, Chars, Concat, Loop, Regex
from jan_serve.constraint.regex.language import full_regex, regex_dfa
from jan_serve.constraint.text_form import PlainText, Spelling
from jan_serve.errors import UnsupportedPattern

Piece: TypeAlias = tuple[CharSet, int, int | None]
"""(characters, fewest, most); most None means no bound."""


def flat_pieces(regex: Regex) -> list[Piece] | None:
    """The pieces of a flat expression; None for any other, or where a piece could run into what follows it."""
    pieces: list[Piece] = []
    for item in regex.items if isinstance(regex, Concat) else (regex,):
        if isinstance(item, Chars):
            pieces.append((item.chars, 1, 1))
        elif isinstance(item, Loop) and isinstance(item.item, Chars):
            pieces.append((item.item.chars, item.low, item.high))
        else:
            return None
    for index, (chars, low, high) in enumerate(pieces):
        if low == high:
            continue
        for other, least, _ in pieces[index + 1 :]:
            if charset.intersect(chars, other):
                return None
            if least:
                break
    return pieces


def pieces_expr(pieces: list[Piece], form: Spelling) -> list[Expr]:
    """The pieces in order, equal single characters joined into counts."""
    joined: list[Piece] = []
    for chars, low, high in pieces:
        if joined and joined[-1][0] == chars and high is not None and (last := joined[-1])[2] == last[1]:
            joined[-1] = (chars, last[1] + low, last[1] + high)
        else:
            joined.append((chars, low, high))
    return [repeat(form.chars(chars), low, high) for chars, low, high in joined]


def translate(pattern: str) -> Grammar:
    """The grammar of the texts that `pattern` matches from end to end."""
    rules, form = RuleBuilder(), PlainText()
    rules.reserve("root")
    with budget():
        regex = full_regex(pattern)
        pieces = flat_pieces(regex)
        if pieces is not None:
            body = sequence([*pieces_expr(pieces, form), form.tail])
        elif (dfa := regex_dfa(regex)).is_empty():
            raise UnsupportedPattern(0, "no text matches the expression")
        else:
            body = dfa_to_expr(dfa, form, rules, "state")
    rules.fill("root", Terminal(body))
    return rules.grammar("root")


def structure_expr(regex: Regex, form: Spelling) -> Expr:
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
