"""Writes the decoded text of a string set, closing quote included: in its own structure where that is deterministic,
else as an automaton."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import reduce
from typing import Final, NamedTuple

from jan_serve.constraint import ast, charset
from jan_serve.constraint.automata.dfa import begins_with_any
from jan_serve.constraint.automata.to_grammar import dfa_to_expr, words_expr
from jan_serve.constraint.json_schema.scalars import strings
from jan_serve.constraint.json_schema.scalars.formats import bounded_uri
from jan_serve.constraint.regex.language import (
    Piece,
    flat_pieces,
    parts_of,
    pieces_expr,
    search_regex,
    structure_expr,
)
from jan_serve.constraint.regex.syntax import ANYTHING, Alternation, Concat, Loop, Regex
from jan_serve.constraint.rules import RuleBuilder
from jan_serve.constraint.text_form import JsonText, PlainText
from jan_serve.constraint.trial import can_be_followed
from jan_serve.errors import GrammarTooComplex

# llguidance has 250,000 states for all terminals, and needs nine to count one character of any kind.
_MOST_COUNTED: Final = 10_000
_PIECE: Final = 1_000
MOST_NEEDED_RAW: Final = 1_000
"""Characters that a raw string may need. llguidance looks for an end of the terminal, a step for each."""
_FEW: Final = 64
_PLAIN: Final = PlainText()


def string_terminal(
    allowed: strings.StringSet, form: JsonText, rules: RuleBuilder, hint: str, *, lark_only: bool = False
) -> ast.Expr:
    """Every string of the set, in quotes. NEVER where the set is empty. lark_only: it may have
    what only Lark's terminals describe."""
    if (found := long_string(allowed, form, rules)) is not None:
        return found
    found, is_free = _structured(allowed, form, rules, hint), False
    if found is None and lark_only and (whole := _in_a_terminal(allowed, form, rules, hint)) is not None:
        return whole
    if found is None:
        language = strings.string_dfa(allowed)
        found = dfa_to_expr(language, form, rules, hint)
        is_free = begins_with_any(language, charset.UNESCAPED)
    return ast.terminal(ast.sequence([ast.Literal('"'), found]), is_free=is_free)


def _in_a_terminal(
    allowed: strings.StringSet, form: JsonText, rules: RuleBuilder, hint: str
) -> ast.Expr | None:
    """See `string_terminal`, of a set that has a string: an expression in its own structure, or a combination of sets.
    None where only an automaton describes it."""
    regex = strings.plain_regex(allowed)
    if regex is not None:
        is_free = _begins_with_any(regex)
    elif all(map(_is_counted, allowed.items if isinstance(allowed, strings.SomeOf) else (allowed,))):
        is_free = False
    elif _are_few(allowed) and (
        isinstance(allowed, strings.AllOf | strings.SomeOf | strings.NotIn)
        or strings.leading_looks(allowed) is not None
    ):
        is_free = _may_begin_with_any(allowed)
    else:
        return None
    whole = ast.Terminal(_combined(allowed, form, rules, hint), is_free=is_free, lark_only=True)
    if (regex is not None and not _repeats_loops(regex)) or can_be_followed(whole, rules.rules):
        return whole
    if (parts := strings.counted(allowed)) is None:
        return None
    # An automaton of all but the length: it has few states where lookaheads combine.
    pattern = ast.sequence([ast.Literal('"'), dfa_to_expr(strings.string_dfa(parts[0]), form, rules, hint)])
    whole = ast.Terminal(ast.Both(pattern, _combined(parts[1], form, rules, hint)), lark_only=True)
    return whole if can_be_followed(whole, rules.rules) else None


def _may_begin_with_any(allowed: strings.StringSet) -> bool:
    """Whether any unescaped text is the beginning of a string of the set."""
    # Each of them takes less work than all together.
    parts = allowed.items if isinstance(allowed, strings.AllOf) else ()
    return all(begins_with_any(strings.string_dfa(each), charset.UNESCAPED) for each in (*parts, allowed))


def _are_few(allowed: strings.StringSet) -> bool:
    """Whether a set is no intersection of many."""
    together = isinstance(allowed, strings.AllOf) and len(allowed.items) - len(_excluded(allowed))
    return together <= strings.MOST_COMBINED


def _excluded(allowed: strings.AllOf) -> list[strings.StringSet]:
    return [item.item for item in allowed.items if isinstance(item, strings.NotIn)]


def _is_counted(allowed: strings.StringSet) -> bool:
    """Whether a great length is a terminal of its own beside the rest."""
    parts = strings.counted(allowed)
    return parts is not None and max(parts[1].low, parts[1].high or 0) <= _MOST_COUNTED


def _begins_with_any(regex: Regex) -> bool:
    """Whether any text may be the beginning of a word."""
    if isinstance(regex, Alternation):
        return any(map(_begins_with_any, regex.items))
    return parts_of(regex)[:1] == [ANYTHING]


def _repeats_loops(regex: Regex, *, within: bool = False) -> bool:
    """Whether a repetition holds another one: their ends may be ambiguous."""
    if isinstance(regex, Loop):
        return within or _repeats_loops(regex.item, within=regex.high != 1)
    return isinstance(regex, Concat | Alternation) and any(
        _repeats_loops(item, within=within) for item in regex.items
    )


def _combined(allowed: strings.StringSet, form: JsonText, rules: RuleBuilder, hint: str) -> ast.Expr:
    """The strings of a set in quotes, of which there are some, as a combination of the sets that it is made of."""

    def written(part: strings.StringSet, form: JsonText = form) -> ast.Expr:
        return _combined(part, form, rules, hint)

    def quoted(text: Regex, form: JsonText = form) -> ast.Expr:
        return ast.sequence([ast.Literal('"'), structure_expr(text, form), form.tail])

    match allowed:
        case strings.AnyString():
            return quoted(ANYTHING)
        case strings.SomeOf(items):
            return ast.choice([written(item) for item in items])
        case strings.NotIn(item):
            return ast.Except(written(strings.ANY_STRING), (written(item, form.excluded),))
        case strings.AllOf(items) if _are_few(allowed):
            within = [written(item) for item in items if not isinstance(item, strings.NotIn)]
            without = [written(item, form.excluded) for item in _excluded(allowed)]
        case strings.AllOf() if (parts := strings.counted(allowed)) is not None:
            within, without = list(map(written, parts)), list[ast.Expr]()
        case _ if (regex := strings.plain_regex(allowed)) is not None:
            return quoted(regex)
        case _ if (looks := strings.leading_looks(allowed)) is not None:
            within = [quoted(looks.rest), *map(quoted, looks.ahead)]
            without = [quoted(look, form.excluded) for look in looks.not_ahead]
        case _:
            return ast.sequence([ast.Literal('"'), string_expr(allowed, form, rules, hint)])
    whole = reduce(ast.Both, within or [written(strings.ANY_STRING)])
    return ast.Except(whole, tuple(without)) if without else whole


def string_expr(allowed: strings.StringSet, form: PlainText, rules: RuleBuilder, hint: str) -> ast.Expr:
    """Every string of the set, followed by the form's tail. NEVER where the set is empty."""
    found = _structured(allowed, form, rules, hint)
    return dfa_to_expr(strings.string_dfa(allowed), form, rules, hint) if found is None else found


def _structured(
    allowed: strings.StringSet, form: PlainText, rules: RuleBuilder, hint: str
) -> ast.Expr | None:
    """See `string_expr`. None for a set that is written as an automaton."""
    if isinstance(allowed, strings.OneOfStrings):
        return words_expr(allowed.values, form, rules, hint)
    pieces = _pieces(allowed)
    if pieces is not None:
        return ast.sequence([*pieces_expr(pieces, form), form.tail])
    high = strings.uri_bound(allowed)
    if high is not None:
        return bounded_uri(form, high)
    tails = strings.bounded_tails(allowed)
    if tails is not None:
        return tails[0].expr(*tails[1:], form, rules, hint)
    if strings.is_empty(allowed):
        return ast.NEVER
    return None


def raw_text(allowed: strings.StringSet, stop: str, rules: RuleBuilder, hint: str) -> ast.Expr:
    """Every string of the set that does not contain `stop`, as it is. NEVER where there is none."""
    raw = strings.intersect(allowed, strings.complement(strings.Pattern(re.escape(stop))))
    if strings.is_empty(raw):
        return ast.NEVER
    if isinstance(raw, strings.OneOfStrings):
        return ast.choice([_PLAIN.literal(value) for value in raw.values])
    return dfa_to_expr(strings.string_dfa(raw), _PLAIN, rules, f"{hint}-text")


class RawStop(NamedTuple):
    """What ends a raw string. special: what `text` ends with, if that is a control token. gap: white space before it,
    which counts as a part of the string. section: as in `Until`; a bounded string is none."""

    text: str
    special: str = ""
    gap: int = 0
    section: tuple[str, str] | None = None

    @property
    def most(self) -> int:
        """The characters that a terminal counts before it. llguidance looks for an end of each terminal with an
        exception, which takes steps where an end has more than a token."""
        return 1_024 if self.special not in ("", self.text) else 4_096


def text_until(allowed: strings.StringSet, stop: RawStop) -> ast.Until | None:
    """Every string of the set that does not contain the stop, and the stop, as a terminal: its masks are fast. None for
    a set that a terminal cannot describe. Raises GrammarTooComplex."""
    if isinstance(allowed, strings.AnyString):
        return ast.Until(0, None, stop.text, stop.special, stop.section)
    if not isinstance(allowed, strings.Length) or (allowed.high or 0) > stop.most:
        return None
    if allowed.low > MOST_NEEDED_RAW:
        raise GrammarTooComplex(f"an unquoted string of at least {allowed.low} characters cannot be counted")
    if stop.gap and allowed.high is not None and allowed.high <= _FEW:
        return None  # a character less would matter
    low = allowed.low + stop.gap if allowed.low else 0
    section = None if stop.section is None else (stop.section[0], "")
    return ast.Until(low, allowed.high, stop.text, stop.special, section)


def long_string(allowed: strings.StringSet, form: PlainText, rules: RuleBuilder) -> ast.Expr | None:
    """A whole string of the set, if it may be longer than one terminal can count: terminals of _PIECE characters each,
    and a last one. None for any other set."""
    pieces = _pieces(allowed)
    if pieces is None or len(pieces) != 1:
        return None
    chars, low, high = pieces[0]
    if max(low, high or 0) <= _MOST_COUNTED:
        return None
    item = form.chars(chars)
    whole = ast.repeat(item, _PIECE, _PIECE)
    first = ast.Terminal(ast.sequence([ast.Literal('"'), whole]))
    more = rules.define("piece", ast.Terminal(whole), complete=True)

    def last(opening: str, least: int, most: int | None) -> ast.Expr:
        begin = [ast.Literal(opening)] if opening else []
        return ast.Terminal(ast.sequence([*begin, ast.repeat(item, least, most), form.tail]))

    options: list[ast.Expr] = []
    for fewest, most, least_rest, most_rest in _counted_in_pieces(low, high):
        if fewest == 0:
            options.append(last('"', least_rest, most_rest))
        if most > 0:
            row = ast.repeat(more, max(fewest - 1, 0), most - 1)
            options.append(ast.sequence([first, row, last("", least_rest, most_rest)]))
    return ast.choice(options)


def _counted_in_pieces(low: int, high: int | None) -> Iterator[tuple[int, int, int, int | None]]:
    """low..high as ranges of (fewest and most pieces, least and most of the rest)."""
    fewest, least = divmod(low, _PIECE)
    if high is None:
        yield fewest, fewest, least, None
        return
    most, rest = divmod(high, _PIECE)
    if fewest == most:
        yield fewest, fewest, least, rest
        return
    yield fewest, fewest, least, _PIECE - 1
    if most - fewest > 1:
        yield fewest + 1, most - 1, 0, _PIECE - 1
    yield most, most, 0, rest


def _pieces(allowed: strings.StringSet) -> list[Piece] | None:
    """The set as a sequence of counted character classes, each disjoint from the next; None if it has no such form."""
    if isinstance(allowed, strings.Length):
        return [(charset.ANY, allowed.low, allowed.high)]
    if isinstance(allowed, strings.Pattern):
        return flat_pieces(search_regex(allowed.pattern))
    if isinstance(allowed, strings.AllOf) and len(allowed.items) == 2:
        pattern, length = allowed.items
        pieces = _pieces(pattern) if isinstance(pattern, strings.Pattern) else None
        if pieces is not None and len(pieces) == 1 and isinstance(length, strings.Length):
            chars, low, high = pieces[0]
            both = strings.intersect(strings.Length(low, high), length)
            if isinstance(both, strings.Length):
                return [(chars, both.low, both.high)]
    return None
