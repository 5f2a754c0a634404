"""Items that must differ and that no grammar can tell apart: each scalar in one spelling, for the executor to compare.

Equal scalars have equal texts, so the executor compares texts; it knows from the automata which beginnings of an item
are left. Arrays and objects are compared when they end. One that is there already has to go on, so only those are
allowed that always may.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from jan_serve.constraint import charset
from jan_serve.constraint.ast import NEVER, Expr, Literal, Terminal, choice, repeat, sequence, terminal
from jan_serve.constraint.automata import dfa as automata
from jan_serve.constraint.automata.counting import SURROGATES, all_words, count_words, is_endless
from jan_serve.constraint.automata.dfa import Dfa
from jan_serve.constraint.automata.to_grammar import dfa_to_expr
from jan_serve.constraint.json_schema import strings
from jan_serve.constraint.json_schema.emit_strings import string_expr
from jan_serve.constraint.json_schema.emitter import Emitter
from jan_serve.constraint.json_schema.ir import NO_VALUE, TRUE, ArraySpec, ObjectSpec, TypeSets
from jan_serve.constraint.json_schema.number_text import number_dfa
from jan_serve.constraint.json_schema.strings import ANY_STRING
from jan_serve.constraint.json_schema.unlisted_names import has_value, name_classes
from jan_serve.constraint.limits import spend
from jan_serve.constraint.regex.language import full_regex, regex_dfa
from jan_serve.constraint.text_form import OneSpelling, PlainText
from jan_serve.core.uniqueness import Automaton, ItemTexts
from jan_serve.errors import GrammarTooComplex, UnsupportedSchema

MAX_EDGES: Final = 20_000
"""Of the automata of one array."""
MAX_ITEMS: Final = 10_000
"""In an array whose items are of a finite set."""


def compared_items(emit: Emitter, spec: ArraySpec, hint: str, pointer: str) -> tuple[Expr, ItemTexts]:
    """One item or more, and the texts that may not repeat. Raises UnsupportedSchema, GrammarTooComplex."""
    if spec.prefix:
        raise UnsupportedSchema(pointer, "uniqueItems", "together with items by position, of large sets")
    sets = emit.expander.expand(spec.rest)
    containers = bool(sets.array or sets.object)
    if not all(_goes_on_array(emit, own) for own in sets.array):
        raise UnsupportedSchema(pointer, "uniqueItems", "of arrays that may not be longer")
    if not all(_goes_on_object(emit, own) for own in sets.object):
        raise UnsupportedSchema(pointer, "uniqueItems", "of objects that may have no other properties")
    words, numbers = strings.string_dfa(sets.string), _numbers(sets)
    texts = ItemTexts(
        automaton_of(words, pointer),
        automaton_of(automata.unite(numbers, automata.from_words(_literals(sets))), pointer),
        endless=is_endless(words) and is_endless(numbers) and not _literals(sets),
        containers=containers,
    )
    count = None if containers else _count(words, numbers, len(_literals(sets)))
    if count is not None:
        spec = replace(spec, high=count if spec.high is None else min(spec.high, count))
    if spec.high is not None and spec.high < max(spec.low, 1):
        return NEVER, texts
    item = emit.rules.define(f"{hint}-unique", _item(emit, sets, numbers, hint))
    more = sequence([emit.comma(), item])
    high = None if spec.high is None else spec.high - 1
    return sequence([item, repeat(more, max(spec.low - 1, 0), high)]), texts


def _goes_on_array(emit: Emitter, spec: ArraySpec) -> bool:
    """Whether one more item may always follow."""
    return spec.high is None and not spec.unique and not spec.contains and has_value(emit.expander, spec.rest)


def _goes_on_object(emit: Emitter, spec: ObjectSpec) -> bool:
    """Whether one more property may always follow."""
    if spec.high is not None or spec.exists:
        return False
    classes = name_classes(emit.expander.terms, spec.rules, ANY_STRING, TRUE)
    return any(
        automata.longest_word(strings.string_dfa(names)) is None and has_value(emit.expander, conj)
        for names, conj in classes
    )


def _item(emit: Emitter, sets: TypeSets, numbers: Dfa, hint: str) -> Expr:
    form = OneSpelling(emit.rules)
    if isinstance(sets.string, strings.AnyString):
        body: Expr = sequence([repeat(form.chars(charset.ANY), 0, None), form.tail])
    else:
        body = string_expr(sets.string, form, emit.rules, hint)
    options = [terminal(sequence([Literal('"'), body]))]
    if numbers.accepting:
        options.append(terminal(dfa_to_expr(numbers, PlainText(), emit.rules, f"{hint}-number")))
    options += [Terminal(Literal(text)) for text in _literals(sets)]
    if sets.array or sets.object:
        options.append(emit.alternatives(replace(NO_VALUE, array=sets.array, object=sets.object), hint))
    return choice(option for option in options if option != NEVER)


def _literals(sets: TypeSets) -> list[str]:
    booleans = [text for bit, text in ((1, "false"), (2, "true")) if sets.boolean & bit]
    return [*booleans, *(["null"] if sets.null else [])]


def _numbers(sets: TypeSets) -> Dfa:
    """The texts of the numbers, without exponents and needless zeros, except that 1 may be 1.0."""
    found = automata.from_words([])
    for spec in sets.number:
        found = automata.unite(found, number_dfa(spec))
    return automata.intersect(found, _plain_numbers())


@lru_cache(maxsize=1)
def _plain_numbers() -> Dfa:
    return regex_dfa(full_regex(r"0(\.0)?|-?([1-9][0-9]*(\.(0|[0-9]*[1-9]))?|0\.[0-9]*[1-9])"))


def automaton_of(dfa: Dfa, pointer: str) -> Automaton:
    """The words of `dfa`, without states that lead to none. Raises GrammarTooComplex above MAX_EDGES."""
    live = dfa.live_states()
    order = [0, *sorted(live - {0})]
    numbers = {state: number for number, state in enumerate(order)}
    sets = dfa.symbol_sets()
    edges = tuple(
        tuple(
            sorted(
                (low, high, numbers[target])
                for symbol, target in enumerate(dfa.table[state])
                if target in live
                for low, high in charset.subtract(sets[symbol], SURROGATES)
            )
        )
        for state in order
    )
    spend(len(order) * (1 + len(sets)) // 8)
    if sum(map(len, edges)) > MAX_EDGES:
        raise GrammarTooComplex(
            f"the items of uniqueItems, or the names above them, need more than {MAX_EDGES} edges",
            pointer=pointer,
        )
    return Automaton(edges, frozenset(numbers[state] for state in dfa.accepting))


def _count(words: Dfa, numbers: Dfa, literals: int) -> int | None:
    """How many values there are, or MAX_ITEMS of more; None where there is no end."""
    found = literals
    for dfa in (words, numbers):
        if automata.longest_word(dfa) is None:
            return None
        found += count_words(dfa, MAX_ITEMS)
    if found > MAX_ITEMS:
        return MAX_ITEMS
    return found - count_words(numbers, MAX_ITEMS) + len({Fraction(text) for text in all_words(numbers)})
