"""The language of a pattern, and its grammar."""

from __future__ import annotations

import itertools
import json
import re
import time
from itertools import product
from typing import TypeAlias

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from jan_serve.constraint.ast import Grammar, Literal, sequence
from jan_serve.constraint.enforce import enforce
from jan_serve.constraint.lark.print_lark import print_lark
from jan_serve.constraint.regex.language import (
    flat_pieces,
    full_regex,
    has_assertions,
    leading_looks,
    pieces_expr,
    regex_dfa,
    search_regex,
    structure_expr,
)
from jan_serve.constraint.regex.language import translate as regex_to_grammar
from jan_serve.constraint.regex.syntax import Regex
from jan_serve.constraint.rules import RuleBuilder
from jan_serve.constraint.text_form import JsonText, PlainText
from jan_serve.core.constraint import JsonSchemaConstraint
from jan_serve.errors import GrammarTooComplex, UnsupportedPattern
from tests.conformance.llguidance_oracle import LlguidanceOracle
from tests.conformance.uniqueness_oracle import UniquenessOracle
from tests.unit.constraint.matching import texts
from tests.unit.constraint.recognizer import Recognizer
from tests.unit.constraint.regex.patterns import LOOKAHEADS, PATTERNS, TEXTS, python


@settings(max_examples=400)
@given(PATTERNS, TEXTS)
def test_search_agrees_with_python(pattern: str, texts: list[str]) -> None:
    dfa, expected = regex_dfa(search_regex(pattern)), python(pattern)
    for text in texts:
        assert dfa.matches(text) == bool(expected.search(text)), (pattern, text)


@settings(max_examples=200)
@given(LOOKAHEADS, TEXTS)
def test_lookaheads_agree_with_python(pattern: str, texts: list[str]) -> None:
    found, whole = regex_dfa(search_regex(pattern)), regex_dfa(full_regex(pattern))
    expected = python(pattern)
    for text in texts:
        assert found.matches(text) == bool(expected.search(text)), (pattern, text)
        assert whole.matches(text) == bool(expected.fullmatch(text)), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("^\\d$", ["7"], ["٣", "a"]),
        ("^\\w$", ["_"], ["é"]),
        ("^\\s$", ["\ufeff", "\u2003", "\n"], ["\x1c", "x"]),
        ("^.$", ["é", "😀"], ["\u2028", "\n"]),
        ("^\\p{Lu}+$", ["ÀB"], ["a", "1"]),
        ("^\\u{1F600}$", ["😀"], ["x"]),
        ("^\\ud83d\\ude00$", ["😀"], ["x"]),
        ("^[\\w-.]$", ["-", ".", "a"], ["/"]),
        ("^a{,2}$", ["a{,2}"], ["a", "aa"]),
        ("^(?!pattern$).*$", ["patter", "patterns"], ["pattern"]),
        ("^(?=.*\\d)(?=.*[a-z]).{3,}$", ["a1b"], ["abc", "a1"]),
        ("^((?:a|b)+)$", ["abba"], [""]),
        ("^[^]$", ["\n", "x"], ["", "xx"]),
        ("^(?<year>\\d{4})$", ["2024"], ["24"]),
        ("^\\cJ\\0\\x41$", ["\n\0A"], ["A"]),
        ("$", ["", "x"], []),
        ("^a|b$", ["ax", "xb"], ["xa", "bx"]),
        ("(^|,)a(,|$)", ["a", "b,a", "a,b"], ["ba", "ab"]),
        ("(?:(?=a)|b)c", ["bc"], ["ac", "c"]),
    ],
)
def test_ecma_meaning(pattern: str, yes: list[str], no: list[str]) -> None:
    dfa = regex_dfa(search_regex(pattern))
    assert [text for text in [*yes, *no] if dfa.matches(text)] == yes


@settings(max_examples=200)
@given(LOOKAHEADS, TEXTS)
def test_leading_lookaheads_are_sets_of_whole_texts(pattern: str, texts: list[str]) -> None:
    whole, looks = regex_dfa(search_regex(f"^{pattern}")), leading_looks(f"^{pattern}")
    parts = [] if looks is None else [*map(regex_dfa, (looks.rest, *looks.ahead, *looks.not_ahead))]
    if looks is not None:
        wanted = [True] * (1 + len(looks.ahead)) + [False] * len(looks.not_ahead)
        for text in texts:
            assert whole.matches(text) == ([part.matches(text) for part in parts] == wanted), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "position"),
    [
        ("a(b", 1),
        ("a)", 1),
        ("^+[a-z]$", 1),
        ("a**", 2),
        ("[z-a]", 1),
        ("[a", 0),
        ("a{2,1}", 1),
        ("(a)\\1", 3),
        ("x(?<=x)a", 1),
        ("(?i)a", 0),
        ("(?P<n>a)", 0),
        ("a\\", 1),
        ("\\p{Nope}", 0),
        ("\\Aa", 0),
        ("(" * 500, 101),
    ],
)
def test_refused_pattern_names_its_position(pattern: str, position: int) -> None:
    with pytest.raises(UnsupportedPattern) as caught:
        search_regex(pattern)
    assert caught.value.position == position
    assert caught.value.reason


_LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"


@pytest.mark.parametrize(
    "pattern",
    [
        r"^(?=.{2,4}$)[a-z]+$",
        r"^(?=.{3}$)[a-z]+$",
        r"^(?=.{3,}$)(?:ab|c)+$",
        r"^(?=.{1,9}$)(?=.*b)[a-c]+$",
        r"^(?=.{2,4}$)[^a]*$",
        r"^(?=.{2,4}$)a.*",
        r"^(?=.{2,4}$)a|b$",
        r"^(?=.{2,4}\.?$)[ab.]+$",
        r"^(?=.{3}b?$)(?:ab|\.)+$",
        r"^(?=.{2,}a?$)[ab]+$",
        r"^(?=.{1,3}\.?$)[ab.]*[^a]$",
        rf"^(?=.{{1,7}}$){_LABEL}(?:\.{_LABEL})*$",
    ],
)
def test_a_lookahead_for_a_length_is_one(pattern: str) -> None:
    """Python's `re` says what is found."""
    compiled = enforce(JsonSchemaConstraint({"type": "string", "pattern": pattern})).compiled
    assert compiled.uniqueness is not None
    oracle = UniquenessOracle()
    matcher = oracle.compile(compiled.lark, compiled.uniqueness)
    texts = ["".join(letters) for count in range(6) for letters in itertools.product("ab.\n", repeat=count)]
    for text in [*texts, "abcabcabcb", "a.b.c.d", "a.b.c.d.e"]:
        found = re.search(pattern.replace("$", r"\Z"), text) is not None
        assert oracle.accepts(matcher, json.dumps(text)) is found, text


@pytest.mark.parametrize("dot", ["", r"\.?"])
def test_the_length_of_a_host_name_is_counted_beside_its_labels(dot: str) -> None:
    """With a dot at the end, which does not count, as validators of schemas in JavaScript write it."""
    pattern = rf"^(?=.{{1,253}}{dot}$){_LABEL}(?:\.{_LABEL})*{dot}$"
    compiled = enforce(JsonSchemaConstraint({"type": "string", "pattern": pattern})).compiled
    assert compiled.uniqueness is not None
    oracle = UniquenessOracle()
    matcher = oracle.compile(compiled.lark, compiled.uniqueness)
    longest = "a." * 126 + "b"
    texts = (longest, f"{longest}.", f"{longest}b", "a.", "a" * 64, f"{longest}..")
    judged = [re.search(pattern.replace("$", r"\Z"), text) is not None for text in texts]
    assert judged == [True, bool(dot), False, bool(dot), False, False]
    assert [oracle.accepts(matcher, json.dumps(text)) for text in texts] == judged


@pytest.mark.parametrize(
    "pattern",
    [
        "^(?:(?!ab).)*$",
        "^((?!ab)[ab-])+$",
        "^(?:(?!--|a)(?!b-).){1,3}$",
        "^a(?:(?!-b)[ab-]){0,2}$",
        "^(?:a|(?:(?!aa)[ab])*)$",
        "-(?:(?!a-).)*$",
        "^(?:(?!(?:ab)+-).)*$",
        "^(?:(?!ab).)*-$",
        "^(?:(?=a).)*$",
        "^(?:(?!a*).)*$",
        "^(?:.(?!a))*$",
        "(?:(?!ab).)*",
        "ab(?:(?!-a).)*-a",
        "^((?!ab)[ab]+-)*[ab]$",
        "^(?:a(?=b)|b(?!-))*-?$",
        r"^(?:\b(?!a)\w+-?)*$",
        "(?:(?!^a)(?=[ab]+-).)+$",
        "^(?:(?!a(?!b)).)*$",
        "^(?:(?=.*b)a|b){2,}-*$",
    ],
)
def test_lookaheads_in_repetitions_agree_with_python(pattern: str) -> None:
    dfa, expected = regex_dfa(search_regex(pattern)), python(pattern)
    for text in ("".join(letters) for size in range(6) for letters in product("ab-", repeat=size)):
        assert dfa.matches(text) == bool(expected.search(text)), text


@settings(max_examples=150)
@given(PATTERNS, TEXTS)
def test_grammar_matches_the_whole_text(pattern: str, texts: list[str]) -> None:
    try:
        grammar = regex_to_grammar(pattern)
    except UnsupportedPattern as error:
        assert error.reason == "no text matches the expression"
        return
    recognizer, oracle = Recognizer(grammar), LlguidanceOracle()
    matcher = oracle.compile(print_lark(grammar))
    expected = python(pattern)
    for text in texts:
        wanted = bool(expected.fullmatch(text))
        assert recognizer.matches(text) == wanted, (pattern, text)
        assert oracle.accepts(matcher, text) == wanted, (pattern, text)


@pytest.mark.parametrize(
    "pattern", [f"^{'a?' * 3900}$", "a*" * 6000, "".join(f"[^{chr(n)}]?" for n in range(0x4E00, 0x5400))]
)
def test_expensive_pattern_is_refused_in_bounded_time(pattern: str) -> None:
    started = time.process_time()
    with pytest.raises(GrammarTooComplex):
        regex_to_grammar(pattern)
    assert time.process_time() - started < 5


@pytest.mark.parametrize("pattern", ["(ab?){1900}", "(a|b)" * 2000])
def test_long_pattern_takes_bounded_time(pattern: str) -> None:
    started = time.process_time()
    print_lark(regex_to_grammar(pattern))
    assert time.process_time() - started < 5


Counts: TypeAlias = tuple[int, int | None]
COUNTS: st.SearchStrategy[Counts] = st.sampled_from([(1, 1), (2, 2), (0, 1), (1, 2), (0, None), (2, None)])


def spelled(piece: tuple[str, Counts]) -> str:
    chars, (low, high) = piece
    return f"{chars}{{{low},{'' if high is None else high}}}"


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "[ab]", "c"]), COUNTS), min_size=1, max_size=4))
def test_a_flat_expression_keeps_its_texts(pieces: list[tuple[str, Counts]]) -> None:
    pattern = "".join(map(spelled, pieces))
    found = flat_pieces(full_regex(pattern))
    if found is None:
        # Only a piece of several counts can run into what follows it.
        assert any(low != high for _, (low, high) in pieces[:-1])
        return
    recognizer, expected = (
        Recognizer(Grammar({"root": sequence(pieces_expr(found, PlainText()))})),
        re.compile(pattern),
    )
    for text in texts("abc", 6):
        assert recognizer.matches(text) is bool(expected.fullmatch(text)), (pattern, text)


def recognizer_of(regex: Regex) -> Recognizer:
    rules = RuleBuilder()
    return Recognizer(rules.grammar(structure_expr(regex, PlainText())))


@settings(max_examples=100)
@given(PATTERNS, TEXTS)
def test_the_words_are_those_of_the_automaton(pattern: str, texts: list[str]) -> None:
    regex = search_regex(pattern)
    assume(not has_assertions(regex))
    recognizer, dfa = recognizer_of(regex), regex_dfa(regex)
    for text in texts:
        assert recognizer.matches(text) is dfa.matches(text), (pattern, text)


def test_characters_have_every_spelling_of_the_form() -> None:
    rules = RuleBuilder()
    form = JsonText(rules)
    expr = sequence([Literal('"'), structure_expr(search_regex("^(é|x)+$"), form), form.tail])
    recognizer = Recognizer(rules.grammar(expr))
    assert [text for text in ('"éx\\u00e9"', '"\\u0078"', '""') if recognizer.matches(text)] == [
        '"éx\\u00e9"'
    ]
